// Package webhook posts alerts, and proposals that begin to wait for approval, to HTTP addresses.
// Messages wait in a bounded queue, so nothing else ever waits for an address. Lines of the log have
// scheme and host of an address alone, since the rest may be a secret.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/backoff"
)

// Bounds of each address.
const (
	// QueueSize is how many messages may wait for it; a further one is lost.
	QueueSize = 256
	// attempts is how often a message is tried: for about an hour.
	attempts    = 65
	minInterval = time.Second
	maxInterval = time.Minute
	// timeout bounds an attempt, and lastly how long Close waits.
	timeout      = 10 * time.Second
	closeTimeout = 2 * time.Second
)

// Config configures a Sender. Every member but Console must be set. Flags of handoffd set the first three.
type Config struct {
	URLs   []string `name:"webhook" help:"URL that gets each alert, and each proposal that begins to wait for approval, as JSON; repeatable. It may be a secret: prefer the variable HANDOFFD_WEBHOOK. See docs/operators.md." placeholder:"URL"`
	Format Format   `name:"webhook-format" help:"JSON format of the webhooks." enum:"json,discord,slack" default:"json"`
	// Console is the prefix of the addresses of pages in messages.
	Console string       `name:"console-url" help:"URL under which people reach the console, such as https://engine.example. If set, messages to webhooks link to its pages." placeholder:"URL"`
	Logger  *slog.Logger `kong:"-"`
}

// Validate returns the first URL that is none of HTTP, without its secrets, or an unknown format.
func (c *Config) Validate() error {
	if len(c.URLs) > 0 && !slices.Contains([]Format{JSON, Discord, Slack}, c.Format) {
		return fmt.Errorf("webhook: format %q: it is json, discord or slack", c.Format)
	}
	for i, address := range c.URLs {
		if !isHTTP(address) {
			return fmt.Errorf("webhook: URL %d is not http://HOST/… or https://HOST/…", i+1)
		}
	}
	if c.Console != "" && !isHTTP(c.Console) {
		return fmt.Errorf("webhook: --console-url %q is not http://HOST/… or https://HOST/…", c.Console)
	}
	return nil
}

// isHTTP reports whether a text is a URL of HTTP with a host.
func isHTTP(address string) bool {
	at, err := url.Parse(address)
	return err == nil && at.Host != "" && (at.Scheme == "https" || at.Scheme == "http")
}

// Names returns the addresses without their secrets.
func (c *Config) Names() (names []string) {
	for _, address := range c.URLs {
		if at, err := url.Parse(address); err == nil {
			names = append(names, at.Scheme+"://"+at.Host)
		}
	}
	return names
}

// Sender posts the messages of all worlds of a server. It is safe for concurrent use.
type Sender struct {
	config Config
	client *http.Client
	pauses backoff.Backoff // of an address that does not accept a message
	stop   context.CancelFunc
	ended  sync.WaitGroup

	sent, lost atomic.Int64

	wait time.Duration // gatherDelay

	mu       sync.Mutex
	queues   []chan message // of each address; nil once it is closed
	gathered map[group][]runevents.Alert
}

// New returns a sender that posts until Close.
func New(config Config) (*Sender, error) {
	return start(config, backoff.Backoff{Min: minInterval, Max: maxInterval})
}

func start(config Config, pauses backoff.Backoff) (*Sender, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	s := &Sender{config: config, pauses: pauses, wait: gatherDelay,
		gathered: map[group][]runevents.Alert{}}
	s.client = &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1},
		Timeout:   timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // an alert goes to the address that was given alone
		},
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	names := config.Names()
	for i, address := range config.URLs {
		queue := make(chan message, QueueSize)
		s.queues = append(s.queues, queue)
		s.ended.Go(func() {
			for m := range queue {
				s.deliver(ctx, address, names[i], &m)
			}
		})
	}
	return s, nil
}

// Stats returns how many messages were delivered, and how many were lost.
func (s *Sender) Stats() (sent, lost int64) { return s.sent.Load(), s.lost.Load() }

// Close posts the messages that wait, as long as ctx and a moment last. Later messages are lost.
func (s *Sender) Close(ctx context.Context) {
	s.mu.Lock()
	waiting := slices.Collect(maps.Keys(s.gathered))
	s.mu.Unlock()
	for _, alike := range waiting {
		s.postGathered(alike)
	}
	s.mu.Lock()
	for i, queue := range s.queues {
		if queue != nil {
			close(queue)
			s.queues[i] = nil
		}
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, s.stop)()
	s.ended.Wait()
	s.stop()
	s.client.CloseIdleConnections()
}

// post queues a message for each address. It never blocks.
func (s *Sender) post(m message) {
	if s.config.Console != "" {
		m.Page = pageOf(s.config.Console, &m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, queue := range s.queues {
		select {
		case queue <- m:
		default: // it is full, or closed
			s.countLost(s.config.Names()[i], errors.New("too many messages wait for this address"))
		}
	}
}

// countLost counts a message that an address does not get.
func (s *Sender) countLost(name string, err error) {
	s.lost.Add(1)
	s.config.Logger.Error("a message to a webhook is lost", "webhook", name, "error", err)
}

// deliver posts a message to an address, again and again if it may be accepted later.
func (s *Sender) deliver(ctx context.Context, address, name string, m *message) {
	body := m.body(s.config.Format)
	pauses := s.pauses
	for attempt := 1; ; attempt++ {
		wait, err := s.attempt(ctx, address, body)
		if err == nil {
			s.sent.Add(1)
			return
		}
		if ctx.Err() != nil || attempt == attempts || errors.Is(err, errRefused) {
			s.countLost(name, err)
			return
		}
		if attempt == 1 {
			s.config.Logger.Warn("a webhook does not take a message; will try again", "webhook",
				name, "error", err)
		}
		_ = backoff.Sleep(ctx, max(wait, pauses.Next())) // the next attempt returns ctx's end
	}
}

// errRefused: the address refuses the message, and would again.
var errRefused = errors.New("webhook: the message was refused")

// attempt posts a body once. wait is how long the address asks to wait before the next attempt.
func (s *Sender) attempt(
	ctx context.Context, address string, body []byte,
) (wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, errRefused // the error has the address
	}
	request.Header.Set("Content-Type", "application/json")
	reply, err := s.client.Do(request)
	if err != nil {
		if failed := new(url.Error); errors.As(err, &failed) {
			err = failed.Err // the outer one has the address
		}
		return 0, err
	}
	defer reply.Body.Close()
	if reply.StatusCode/100 == 2 {
		return 0, nil
	}
	switch reply.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
	default:
		if reply.StatusCode < http.StatusInternalServerError {
			return 0, fmt.Errorf("%w: %s", errRefused, reply.Status)
		}
	}
	seconds, _ := strconv.ParseFloat(reply.Header.Get("Retry-After"), 64)
	wait = time.Duration(min(max(seconds, 0), maxInterval.Seconds()) * float64(time.Second))
	return wait, fmt.Errorf("webhook: it answered %s", reply.Status)
}

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/apply"
)

// Plugin answers the requests for its towns. Serve starts it, Close ends it. It is safe for
// concurrent use.
type Plugin struct {
	config Config
	nc     *nats.Conn
	subs   []*nats.Subscription

	ctx     context.Context // of Apply and Recover
	giveUp  context.CancelFunc
	slots   chan struct{} // one for each town that is worked on
	workers sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	jobs      map[string]*job   // by applyId: what waits or is being applied
	towns     map[string][]*job // the same by town, in order; the first may be being applied
	unwritten map[string]Record // what could not be written to the memory
}

// request is a command on its way from the wire.
type request struct {
	command *apply.Command
	reply   string
	// until is the end of timeoutMs by this clock.
	until time.Time
}

// Serve answers the requests on nc, which stays the caller's: close it after the plugin. When Serve
// returns, the server knows the subscriptions. The errors are ErrConfig and ErrSubscribe.
func Serve(nc *nats.Conn, config Config) (*Plugin, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		config: config, nc: nc, slots: make(chan struct{}, config.Concurrency),
		jobs: map[string]*job{}, towns: map[string][]*job{}, unwritten: map[string]Record{},
	}
	p.ctx, p.giveUp = context.WithCancel(context.Background())
	if err := p.subscribe(); err != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, p.Close(ended))
	}
	return p, nil
}

func (p *Plugin) subscribe() error {
	for _, subject := range Subjects(p.config.World, p.config.Towns...) {
		sub, err := p.nc.Subscribe(subject, p.take)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrSubscribe, subject, err)
		}
		p.subs = append(p.subs, sub)
	}
	if err := p.nc.Flush(); err != nil {
		return fmt.Errorf("%w: %w", ErrSubscribe, err)
	}
	// The server reports denied subscriptions before it answers the flush.
	last := p.nc.LastError()
	for _, sub := range p.subs {
		if errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(),
			`"`+sub.Subject+`"`) {
			return fmt.Errorf("%w: %s: %w", ErrSubscribe, sub.Subject, last)
		}
	}
	answering, err := AnswerHosts(p.nc, p.config.World, p.config.Towns...)
	p.subs = append(p.subs, answering...)
	return err
}

// take is called for one request of a subject at a time, so it only routes it.
func (p *Plugin) take(msg *nats.Msg) {
	arrived := p.config.Now()
	c, err := p.read(msg)
	if err != nil {
		p.config.Logger.Warn("a request is no command for this plugin and is not answered",
			"subject", msg.Subject, "error", err)
		return
	}
	// A longer timeout would not fit into a Duration.
	timeout := min(c.TimeoutMs, (24 * time.Hour).Milliseconds())
	r := request{command: c, reply: msg.Reply,
		until: arrived.Add(time.Duration(timeout) * time.Millisecond)}
	if answer, known := p.admit(r); known {
		p.send(msg.Reply, &answer)
		p.config.Answered(c, &answer, true)
	}
}

// read returns the command of a request. Its town must be the subject's, because a NATS permission
// covers the subject.
func (p *Plugin) read(msg *nats.Msg) (*apply.Command, error) {
	if msg.Reply == "" {
		return nil, errors.New("it has no reply subject")
	}
	c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
	if err != nil {
		return nil, err
	}
	if msg.Subject != subjectOf(p.config.World, c.TownID) {
		return nil, fmt.Errorf("it is about the town %q", c.TownID)
	}
	c.Trace = trace.FromHeader(msg.Header)
	return c, nil
}

// send answers a request. If sending fails, the engine asks again.
func (p *Plugin) send(reply string, answer *apply.Answer) {
	data, err := answer.MarshalWire()
	if err == nil {
		err = p.nc.Publish(reply, data)
	}
	if err != nil {
		p.config.Logger.Warn("an answer could not be sent", "applyId", answer.ApplyID,
			"status", string(answer.Status), "error", err)
	}
}

// Close receives no more requests, and returns when every command is answered. If ctx ends first,
// it ends the ctx of Apply, answers busy to commands that are not begun, and returns ErrUnfinished
// without waiting for the others.
func (p *Plugin) Close(ctx context.Context) error {
	// The answers leave before the caller closes the connection. Lost ones are asked for again.
	defer func() { _ = p.nc.FlushTimeout(5 * time.Second) }()
	defer p.giveUp()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, sub := range p.subs {
		_ = sub.Drain() // of a closed connection, or for the second time
	}
	finished := make(chan struct{})
	go func() {
		p.workers.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.jobs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d of them: %w", ErrUnfinished, len(p.jobs), ctx.Err())
}

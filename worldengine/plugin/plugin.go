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
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/queue"
)

// Plugin answers the requests for its towns. Serve starts it, Close ends it. It is safe for
// concurrent use.
type Plugin struct {
	config      Config
	nc          *nats.Conn
	subs        []*nats.Subscription
	exclusivity exclusivity

	ctx    context.Context // of Apply and Recover
	giveUp context.CancelFunc
	queue  *queue.Queue

	mu        sync.Mutex
	jobs      map[string]*job   // by applyId
	unwritten map[string]Record // records that could not be written to the memory
}

type request struct {
	command *Command
	reply   string
	until   time.Time // the end of timeoutMs by the plugin's clock
}

// Serve answers requests on nc. When it returns, the NATS server knows the subscriptions. The caller
// closes nc, after the plugin. The errors are ErrConfig and ErrSubscribe.
func Serve(nc *nats.Conn, config Config) (*Plugin, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		config: config, nc: nc, jobs: map[string]*job{}, unwritten: map[string]Record{},
	}
	p.ctx, p.giveUp = context.WithCancel(context.Background())
	// admit bounds the jobs. With twice as many slots, the queue refuses no job, even if one town
	// has all.
	p.exclusivity.checked.Store(nc.Stats().Reconnects)
	p.queue = queue.New(p.ctx, queue.Config{
		Workers: config.Concurrency, PerTown: config.Queue,
		Total: 2 * (config.Queue + config.Concurrency), Logger: config.Logger,
	})
	if err := p.subscribe(); err != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, p.Close(ended))
	}
	p.watchExclusivity()
	return p, nil
}

func (p *Plugin) subscribe() error {
	for _, subject := range Subjects(p.config.World, p.config.Towns...) {
		sub, err := p.nc.Subscribe(subject, p.receive)
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
	var err error
	p.exclusivity.answering, err = answerHosts(p.nc, p.config.World, p.config.Towns...)
	return err
}

// receive queues a request, and does not wait: NATS calls it for one request of a subject at a time.
func (p *Plugin) receive(msg *nats.Msg) {
	arrived := p.config.Now()
	c, err := p.read(msg)
	if err != nil {
		p.config.Logger.Warn("a request that is no command for this plugin is not answered",
			"subject", msg.Subject, "error", err)
		return
	}
	// A much longer timeout would overflow a Duration.
	timeout := min(c.TimeoutMs, (24 * time.Hour).Milliseconds())
	r := request{command: c, reply: msg.Reply,
		until: arrived.Add(time.Duration(timeout) * time.Millisecond)}
	answer, known := p.admitIfExclusive(r)
	if known {
		p.send(msg.Reply, &answer)
		p.config.Answered(c, &answer, true)
	}
}

// read returns the command of a request. The command's town must be the subject's town, because
// NATS checks the permission for the subject.
func (p *Plugin) read(msg *nats.Msg) (*Command, error) {
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
	c.Trace = trace.Extract(msg.Header)
	return c, nil
}

// send answers a request. If that fails, the engine requests the command again.
func (p *Plugin) send(reply string, answer *Answer) {
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
// Close ends the ctx of Apply and Recover, and returns ErrUnfinished at once. Commands that are not
// begun are then answered busy.
func (p *Plugin) Close(ctx context.Context) error {
	// The answers leave before the caller closes the connection.
	defer func() { _ = p.nc.FlushTimeout(5 * time.Second) }()
	defer p.endAnswering()
	defer p.exclusivity.watching.Wait()
	defer p.giveUp()
	for _, sub := range p.subs {
		_ = sub.Drain() // fails if the connection is closed, or on a second Close
	}
	if err := p.queue.Drain(ctx); err != nil {
		return fmt.Errorf("%w: %d of them: %w", ErrUnfinished, p.queue.CountUnfinished(), err)
	}
	return nil
}

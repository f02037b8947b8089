package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/client"
	"worldengine/worldengine/platform"
	"worldengine/worldengine/wire"
)

// maxPrepared bounds the handoffs that are made ahead, some 2 KB each. What a phase needs beyond
// them is made while it is timed, and counted as pause.
const maxPrepared = 100_000

// bench is one run.
type bench struct {
	config  Config
	control *nats.Conn   // the towns, the follower's streams
	clients []*nats.Conn // the workers'
	targets []*target
	workers []*worker
	opened  []*nats.Conn
}

// Run measures. The report has the wrong answers; the error is that of a server
// which could not be reached or refused to take part.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	b := &bench{config: config}
	defer b.close()
	if err := b.setUp(ctx); err != nil {
		return nil, err
	}
	report := newReport(&config)
	report.Server = b.control.ConnectedUrlRedacted()
	rate, err := b.warmUp(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.measureEcho(ctx, report); err != nil {
		return nil, err
	}
	if config.Rate > 0 {
		rate = min(rate, config.Rate)
	}
	each := int(1.5*rate*config.Duration.Seconds())/config.Towns + refillSteps
	for range max(config.Phases, 1) {
		if err := prepare(ctx, b.targets, b.atMost(each)); err != nil {
			return nil, err
		}
		if err := b.measureHandoffs(ctx, report); err != nil {
			return nil, err
		}
		if config.Phases > 1 {
			report.Phases = append(report.Phases,
				Phase{report.Handoffs, report.ServerCPUMicros})
		}
	}
	if report.Followers, err = b.lags(ctx); err != nil {
		report.FollowersUnknown = err.Error()
	}
	switch report.Append, err = b.measureAppend(ctx); {
	case err != nil:
		report.AppendUnknown = err.Error()
	case report.Append.PerSecond > 0:
		report.OfAppend = report.Executed / report.Append.PerSecond
	}
	return report, b.checkTowns(ctx, report)
}

func (b *bench) connect(purpose string) (*nats.Conn, error) {
	nc, err := b.config.Connect("handoffctl bench " + purpose)
	if err == nil {
		b.opened = append(b.opened, nc)
	}
	return nc, err
}

// lags reads how far the followers are behind the log. It fails where this client may not read the
// streams.
func (b *bench) lags(ctx context.Context) ([]Lag, error) {
	if b.config.Streams == nil {
		return nil, errNoStreams
	}
	nc, err := b.config.Streams("handoffctl bench streams")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	return lags(ctx, nc, b.config.World)
}

func (b *bench) close() {
	for _, nc := range b.opened {
		nc.Close()
	}
}

// setUp makes the connections, the towns and the workers.
func (b *bench) setUp(ctx context.Context) (err error) {
	if b.control, err = b.connect("control"); err != nil {
		return err
	}
	for i := range b.config.Connections {
		nc, err := b.connect(fmt.Sprintf("client %d", i+1))
		if err != nil {
			return err
		}
		b.clients = append(b.clients, nc)
	}
	if b.targets, err = createTowns(ctx, b.server(), &b.config, uuid.NewString()[:8]); err != nil {
		return err
	}
	for i := range b.config.Concurrency {
		w := &worker{
			nc: b.clients[i%len(b.clients)], timeout: b.config.Timeout,
			subject: wire.Subject(b.config.World, wire.Handoff),
		}
		for t := i; t < len(b.targets); t += b.config.Concurrency {
			w.targets = append(w.targets, b.targets[t])
		}
		b.workers = append(b.workers, w)
	}
	return nil
}

func (b *bench) server() *client.Client {
	return &client.Client{Conn: b.control, World: b.config.World, Timeout: b.config.Timeout}
}

// atMost bounds how many handoffs of each town are made ahead.
func (b *bench) atMost(each int) int { return min(each, maxPrepared/b.config.Towns+1) }

// warmUp drives every town for a moment, and returns how many handoffs a second that made.
func (b *bench) warmUp(ctx context.Context) (rate float64, err error) {
	if err := prepare(ctx, b.targets, b.atMost(2*refillSteps)); err != nil {
		return 0, err
	}
	phase, err := b.handoffs(ctx, min(max(b.config.Duration/5, 50*time.Millisecond), time.Second),
		0)
	if err != nil {
		return 0, err
	}
	return phase.perSecond(), nil
}

// measureEcho measures plain request-reply with messages of the handoffs' and results' sizes.
func (b *bench) measureEcho(ctx context.Context, report *Report) error {
	report.HandoffBytes, report.ResultBytes = b.sizes()
	responder, err := b.connect("echo")
	if err != nil {
		return err
	}
	subject, err := startEcho(responder, report.ResultBytes)
	if err != nil {
		return err
	}
	echoers := make([]*echoer, b.config.Concurrency)
	runs := make([]func(context.Context, time.Time) error, len(echoers))
	for i := range echoers {
		echoers[i] = &echoer{
			nc: b.clients[i%len(b.clients)], subject: subject, timeout: b.config.Timeout,
			data: make([]byte, report.HandoffBytes), replySize: report.ResultBytes,
		}
		runs[i] = echoers[i].run
	}
	runtime.GC()
	elapsed, err := timed(ctx, time.Now(), b.config.Duration, runs)
	if err != nil {
		return err
	}
	var all []time.Duration
	for _, e := range echoers {
		all = append(all, e.latencies...)
	}
	report.Echo = rateOf(all, elapsed)
	return nil
}

// sizes returns the bytes of a handoff and of its result, as the first town has them.
func (b *bench) sizes() (handoff, result int) {
	return len(b.targets[0].chain.sent), len(b.targets[0].last)
}

// phase is what the workers did in some time.
type phase struct {
	latencies []time.Duration
	elapsed   time.Duration
	// cpu is the processor time of this process, serverCPU that of the server, where it says so.
	cpu, serverCPU time.Duration
}

func (p *phase) perSecond() float64 { return float64(len(p.latencies)) / p.elapsed.Seconds() }

// handoffs lets the workers drive their towns for so long, at a rate in all, 0 for as fast as they
// can.
func (b *bench) handoffs(
	ctx context.Context, duration time.Duration, rate float64,
) (*phase, error) {
	runs := make([]func(context.Context, time.Time) error, len(b.workers))
	runtime.GC()
	pace := &pacer{rate: rate}
	for i, w := range b.workers {
		w.reset()
		w.pace = pace
		runs[i] = w.run
	}
	before := platform.ProcessorTime()
	pace.start = time.Now()
	elapsed, err := timed(ctx, pace.start, duration, runs)
	if err != nil {
		return nil, err
	}
	p := &phase{elapsed: elapsed, cpu: platform.ProcessorTime() - before}
	for _, w := range b.workers {
		p.latencies = append(p.latencies, w.latencies...)
	}
	return p, nil
}

func (b *bench) measureHandoffs(ctx context.Context, report *Report) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	projections := make(chan *Projections, 1)
	go func() { projections <- watchProjections(watching, b.control, b.config.World) }()
	server, before, known := serverCPU(ctx, b.control, b.config.World)
	phase, err := b.handoffs(ctx, b.config.Duration, b.config.Rate)
	stop()
	report.Projections = <-projections
	if err != nil {
		return err
	}
	if same, after, ok := serverCPU(ctx, b.control, b.config.World); known && ok && same == server {
		phase.serverCPU = after - before
	}
	report.addHandoffs(phase, b.workers)
	return nil
}

// checkTowns compares every town with what its answers said.
func (b *bench) checkTowns(ctx context.Context, report *Report) error {
	server := b.server()
	for _, t := range b.targets {
		problem, err := t.check(ctx, server)
		if err != nil {
			return err
		}
		if problem != "" {
			report.blame(problem)
		}
	}
	return nil
}

// timed runs all at once until the duration from start on is over, and returns how long the last
// one took. The first error ends all.
func timed(
	ctx context.Context, start time.Time, duration time.Duration,
	runs []func(context.Context, time.Time) error,
) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, len(runs))
	for _, run := range runs {
		go func() { done <- run(ctx, start.Add(duration)) }()
	}
	for range runs {
		if err := <-done; err != nil {
			cancel(err)
		}
	}
	elapsed := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return 0, interrupted(err)
	}
	return elapsed, nil
}

func interrupted(err error) error {
	if err == context.Canceled {
		return &client.UnavailableError{Code: "INTERRUPTED", Message: "interrupted", Cause: err}
	}
	return err
}

// Package bench measures executed handoffs against plain request-reply and against bare guarded
// appends, in one run on one NATS server. The rules predict each result, so it checks every answer.
package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/platform"
)

// Settings are the settings of a run, with tags for a kong command line.
type Settings struct {
	Towns       int           `help:"Number of towns that are driven." default:"64"`
	Concurrency int           `help:"Number of requests in flight; at most one a town." default:"64"`
	Connections int           `help:"Number of client connections that they share." default:"4"`
	Duration    time.Duration `help:"Length of each phase: the echo, the handoffs, the bare appends. Without --rate a phase of handoffs has one for each town at least." default:"5s"`
	Phases      int           `help:"Number of phases of handoffs, one after the other on the same towns." default:"1"`
	Rate        float64       `help:"Handoffs offered a second; 0 for as many as are answered." default:"0"`
}

// Config has all that a run needs. Validate checks it.
type Config struct {
	Settings
	// Connect makes a connection to the NATS server, which the run closes.
	Connect func(name string) (*nats.Conn, error)
	// Streams makes one that may use the streams of the world; nil if no user may.
	Streams func(name string) (*nats.Conn, error)
	// World is the world's name. The towns of the run are created in it, and removed in the end if
	// this client may.
	World string
	// Timeout bounds one request.
	Timeout time.Duration
}

// Validate returns an error if the settings cannot be measured with.
func (c *Config) Validate() error {
	switch {
	case min(c.Towns, c.Concurrency, c.Connections, c.Phases) < 1:
		return errors.New("bench: towns, concurrency, connections and phases must be at least 1")
	case c.Concurrency > c.Towns:
		return fmt.Errorf("bench: a concurrency of %d needs as many towns, not %d, since a town "+
			"executes one handoff at a time", c.Concurrency, c.Towns)
	case c.Duration < 10*time.Millisecond, c.Timeout <= 0:
		return errors.New("bench: the duration must be at least 10ms, the timeout above 0")
	case c.Rate < 0, c.Rate != 0 && c.Rate*c.Duration.Seconds() < 1:
		return errors.New("bench: the rate must be 0 or make a handoff within the duration")
	}
	return nil
}

// bench is one run.
type bench struct {
	Config
	clients []*nats.Conn
	towns   []*driven
	opened  []*nats.Conn

	mu       sync.Mutex // for the wrong answers
	wrong    int
	examples []string
}

// Run measures. Wrong answers are in the report; an error says that the server cannot be reached or
// refuses to take part.
func Run(ctx context.Context, config Config) (*Report, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	b := &bench{Config: config}
	defer func() {
		for _, nc := range b.opened {
			nc.Close()
		}
	}()
	defer b.removeTowns(ctx)
	if err := b.setUp(ctx); err != nil {
		return nil, err
	}
	report := &Report{
		Server: b.clients[0].ConnectedUrlRedacted(), World: b.World, Towns: b.Towns,
		Concurrency: b.Concurrency, Connections: b.Connections, Seconds: b.Duration.Seconds(),
		Rate: b.Rate,
	}
	if err := b.measure(ctx, report); err != nil {
		return nil, err
	}
	report.Wrong, report.Examples = b.wrong, b.examples
	return report, nil
}

// measure warms up and runs the phases.
func (b *bench) measure(ctx context.Context, report *Report) error {
	if err := b.prepare(100); err != nil {
		return err
	}
	warm, err := b.handoffs(ctx, min(max(b.Duration/5, 50*time.Millisecond), time.Second), 0)
	if err != nil {
		return err
	}
	if err := b.echo(ctx, report); err != nil {
		return err
	}
	rate := warm.PerSecond
	if b.Rate > 0 {
		rate = min(rate, b.Rate)
	}
	each := 1.5 * rate * b.Duration.Seconds() / float64(b.Towns)
	for range b.Phases {
		if err := b.prepare(int(each) + 100); err != nil {
			return err
		}
		phase, err := b.handoffs(ctx, b.Duration, b.Rate)
		if err != nil {
			return err
		}
		report.Phases = append(report.Phases, phase)
	}
	last := report.Phases[b.Phases-1]
	report.Handoffs, report.Costs = last.Rate, last.Costs
	report.Ratio = report.Executed / report.Echo.PerSecond
	if report.Append, err = b.append(ctx); err != nil {
		report.AppendUnknown = err.Error()
	} else {
		report.OfAppend = report.Executed / report.Append.PerSecond
	}
	return b.checkTowns(ctx)
}

// setUp makes the connections and the towns, whose ids are new in any world.
func (b *bench) setUp(ctx context.Context) error {
	for range b.Connections {
		nc, err := b.connect(b.Connect, "client")
		if err != nil {
			return err
		}
		b.clients = append(b.clients, nc)
	}
	run := uuid.NewString()[:8]
	for i := range b.Towns {
		t := newDriven(fmt.Sprintf("bench-%s-%d", run, i))
		if _, err := b.client().PutTown(ctx, t.state.Snapshot, client.Put{}); err != nil {
			return fmt.Errorf("bench: town %s: %w", t.state.Snapshot.TownID, err)
		}
		b.towns = append(b.towns, t)
	}
	return nil
}

// removeTowns removes the towns of the run, also of one that was interrupted. A client that may not
// remove towns leaves them.
func (b *bench) removeTowns(ctx context.Context) {
	for _, t := range b.towns {
		if _, err := b.client().RemoveTown(context.WithoutCancel(ctx), t.state.Snapshot.TownID); err != nil {
			return
		}
	}
}

func (b *bench) connect(
	dial func(string) (*nats.Conn, error), purpose string,
) (*nats.Conn, error) {
	nc, err := dial("handoffctl bench " + purpose)
	if err == nil {
		b.opened = append(b.opened, nc)
	}
	return nc, err
}

func (b *bench) client() *client.Client {
	return &client.Client{Conn: b.clients[0], World: b.World, Timeout: b.Timeout}
}

// handoffs drives the towns for so long, at a rate in all, 0 for as fast as they answer.
func (b *bench) handoffs(
	ctx context.Context, duration time.Duration, rate float64,
) (phase Phase, err error) {
	wrong := b.wrong
	server, serverBefore := serverCPU(ctx, b.clients[0], b.World)
	before := platform.ProcessorTime()
	rounds := (b.Towns + b.Concurrency - 1) / b.Concurrency
	phase.Rate, err = b.drive(ctx, duration, rate, rounds, func(worker, round int) error {
		mine := (b.Towns - worker + b.Concurrency - 1) / b.Concurrency
		town := b.towns[worker+round%mine*b.Concurrency]
		return b.send(ctx, b.clients[worker%len(b.clients)], town)
	})
	if err != nil {
		return phase, err
	}
	n := float64(phase.Count)
	phase.Executed = phase.PerSecond * (1 - float64(b.wrong-wrong)/n)
	phase.CPUMicros = float64((platform.ProcessorTime() - before).Microseconds()) / n
	if same, after := serverCPU(ctx, b.clients[0], b.World); same == server {
		phase.ServerCPUMicros = float64((after - serverBefore).Microseconds()) / n
	}
	return phase, nil
}

// drive lets each worker do one round after another until the duration is over, and so many rounds
// at least if there is no rate. The first error ends all.
func (b *bench) drive(
	ctx context.Context, duration time.Duration, rate float64, rounds int,
	do func(worker, round int) error,
) (Rate, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	latencies := make([][]time.Duration, b.Concurrency)
	var workers sync.WaitGroup
	var sent atomic.Int64
	runtime.GC()
	start := time.Now()
	for i := range latencies {
		latencies[i] = make([]time.Duration, 0, 1<<14)
		workers.Go(func() {
			for round := 0; ; round++ {
				due := time.Now()
				if rate > 0 {
					due = start.Add(time.Duration(float64(sent.Add(1)-1) / rate * float64(time.Second)))
				}
				if due.Sub(start) >= duration && (rate > 0 || round >= rounds) ||
					ctx.Err() != nil || rate > 0 && backoff.Sleep(ctx, time.Until(due)) != nil {
					return
				}
				if err := do(i, round); err != nil {
					cancel(err)
					return
				}
				latencies[i] = append(latencies[i], time.Since(due))
			}
		})
	}
	workers.Wait()
	elapsed := time.Since(start)
	switch err := context.Cause(ctx); err {
	case nil:
		return rateOf(slices.Concat(latencies...), elapsed), nil
	case context.Canceled:
		return Rate{}, &client.UnavailableError{
			Code: "INTERRUPTED", Message: "interrupted", Cause: err,
		}
	default:
		return Rate{}, err
	}
}

// blame counts a wrong answer, and keeps the first ones for the report.
func (b *bench) blame(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong++; b.wrong <= maxExamples {
		b.examples = append(b.examples, fmt.Sprintf(format, args...))
	}
}

package handoffctl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/tool/tempserver"
	"worldengine/worldengine/wire"
)

// benchCommand measures executed handoffs against plain request-reply and against bare guarded
// appends, in one go on one NATS server. The rules predict each result, so benchCommand checks
// every answer.
type benchCommand struct {
	Towns       int           `help:"Number of towns to drive." default:"64"`
	Concurrency int           `help:"Number of requests in flight; at most one per town." default:"64"`
	Connections int           `help:"Number of client connections that the requests share." default:"4"`
	Duration    time.Duration `help:"Length of each phase: echo, handoffs, appends. Without --rate every town gets at least one handoff in a phase." default:"5s"`
	Phases      int           `help:"Number of phases of handoffs, one after another, on the same towns." default:"1"`
	Rate        float64       `help:"Handoffs to send per second; 0 for as many as are answered." default:"0"`
	Sync        server.Sync   `help:"When the private server writes a commit to disk: every two seconds (interval) or before the answer (always)." enum:"interval,always" default:"interval"`
	Worlds      int           `help:"Number of worlds of the private server. If there are several, each phase of handoffs in one world is followed by one of as many towns spread over all of them." default:"1"`
	Flood       int           `help:"Number of handoffs in flight in another world, without a pause, during a further phase after each. Requires --worlds of at least 2." default:"0"`
	Join        bool          `help:"Measure the server of --server instead of a private one. The run removes its towns at the end, if this user may remove towns."`
}

func (benchCommand) Help() string {
	return `Measures executed handoffs per second and their latencies: on a private server with a
data directory below $TMPDIR, or with --join on a running server, which must have the default rules.
Two ratios make runs comparable: to plain NATS request-reply with bodies of the same sizes, and to
bare guarded appends of a message as large as a commit, to a stream that is removed at the end. The
appends require the right to create streams. With --join the server's own processor time is printed
too.

Each worker drives its own towns, one request at a time. The rules predict every state, so every
answer is checked, and at the end every town. A wrong one makes the exit status 1.

With --rate a latency counts from the time when the handoff is due. With --phases you can compare
the last phase of a long run with the first. With --worlds and --flood the report compares the medians
of the phases: the handoffs per second in all worlds and in one, and the p99 beside a flood in another
world and without one.

Example:

    handoffctl bench --duration 10s --rate 1000
    handoffctl bench --phases 5 --worlds 16
    handoffctl bench --phases 5 --worlds 2 --rate 300 --flood 64`
}

func (c *benchCommand) Run(ctx context.Context, a *app) (err error) {
	b := &bench{benchCommand: c, app: a, worlds: []string{a.flags.World}}
	if !c.Join {
		srv, end, err := tempserver.Start(ctx, server.Config{Sync: c.Sync, Worlds: b.allWorlds()})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		a.flags.Server, a.flags.Connection = srv.URL(), natsconn.Options{}
	}
	report, err := b.run(ctx)
	if err != nil {
		return err
	}
	err = a.print(report, func(t table) { t.bench(report) })
	if err == nil && report.Wrong > 0 {
		return failedf("wrong answers: %d", report.Wrong)
	}
	return err
}

// Validate returns an error for settings that allow no measurement.
func (c *benchCommand) Validate() error {
	switch {
	case min(c.Towns, c.Concurrency, c.Connections, c.Phases, c.Worlds) < 1:
		return errors.New("towns, concurrency, connections, phases and worlds must be at least 1")
	case c.Worlds > 1 && c.Join:
		return errors.New("--worlds is for the private server: run one bench --join for each world instead")
	case c.Flood < 0, c.Flood > 0 && c.Worlds == 1:
		return errors.New("the flood must be 0, or at least 1 with --worlds of at least 2")
	case c.Concurrency > c.Towns:
		return fmt.Errorf("a concurrency of %d needs as many towns, not %d, since a town executes one "+
			"handoff at a time", c.Concurrency, c.Towns)
	case c.Duration < 10*time.Millisecond:
		return errors.New("the duration must be at least 10ms")
	case c.Rate < 0, c.Rate != 0 && c.Rate*c.Duration.Seconds() < 1:
		return errors.New("the rate must be 0 or make a handoff within the duration")
	}
	return nil
}

type bench struct {
	*benchCommand
	app     *app
	worlds  []string // that the towns are in, by turns
	clients []*client.Client
	towns   []*driven

	mu       sync.Mutex // for the wrong answers
	wrong    int
	examples []string
}

// run measures all phases. Wrong answers are in the report. It fails if the server cannot be
// reached, or refuses to be measured.
func (b *bench) run(ctx context.Context) (*benchReport, error) {
	defer b.removeTowns(ctx)
	if err := b.setUp(ctx); err != nil {
		return nil, err
	}
	sides, err := b.setUpSides(ctx)
	if err != nil {
		return nil, err
	}
	report := &benchReport{
		Server: b.client().Conn.ConnectedUrlRedacted(), World: b.app.flags.World, Towns: b.Towns,
		Concurrency: b.Concurrency, Connections: b.Connections, Seconds: b.Duration.Seconds(),
		Rate: b.Rate, InProcess: !b.Join,
	}
	if report.InProcess {
		report.Sync = string(b.Sync)
	}
	if err := b.prepare(100); err != nil {
		return nil, err
	}
	warm, err := b.handoffs(ctx, min(max(b.Duration/5, 50*time.Millisecond), time.Second), 0)
	if err != nil {
		return nil, err
	}
	if err := b.echo(ctx, report); err != nil {
		return nil, err
	}
	rate := warm.PerSecond
	if b.Rate > 0 {
		rate = min(rate, b.Rate)
	}
	if err := b.measurePhases(ctx, sides, rate, report); err != nil {
		return nil, err
	}
	last := report.Phases[b.Phases-1]
	report.Handoffs, report.benchCosts = last.benchRate, last.benchCosts
	report.Ratio = report.Executed / report.Echo.PerSecond
	if report.Append, err = b.append(ctx); err != nil {
		report.AppendUnknown = sentence(err)
	} else {
		report.OfAppend = report.Executed / report.Append.PerSecond
	}
	err = nil
	for _, load := range append(sides.loads(), b) {
		err = errors.Join(err, load.checkTowns(ctx))
		report.Wrong, report.Examples = report.Wrong+load.wrong, append(report.Examples, load.examples...)
	}
	return report, err
}

// measurePhases measures the phases of handoffs, and the other loads by turns. expected is
// about how many handoffs a second are answered.
func (b *bench) measurePhases(
	ctx context.Context, sides *sides, expected float64, report *benchReport,
) error {
	if sides != nil {
		report.Worlds = &benchWorlds{Count: b.Worlds}
	}
	for range b.Phases {
		phase, err := b.phase(ctx, expected)
		if err != nil {
			return err
		}
		report.Phases = append(report.Phases, phase)
		if sides == nil {
			continue
		}
		if err := sides.measure(ctx, b, expected, report.Worlds); err != nil {
			return err
		}
	}
	if sides != nil {
		report.Worlds.compare(report.Phases)
	}
	return nil
}

// phase makes handoffs ahead, and drives the towns for the duration.
func (b *bench) phase(ctx context.Context, expected float64) (benchPhase, error) {
	if err := b.makeAhead(expected); err != nil {
		return benchPhase{}, err
	}
	return b.handoffs(ctx, b.Duration, b.Rate)
}

// makeAhead makes about as many handoffs as a phase needs.
func (b *bench) makeAhead(expected float64) error {
	return b.prepare(int(1.5*expected*b.Duration.Seconds()/float64(b.Towns)) + 100)
}

// setUp makes the connections, and puts towns with new ids.
func (b *bench) setUp(ctx context.Context) error {
	for range b.Connections {
		nc, err := b.app.dial("handoffctl bench client")
		if err != nil {
			return err
		}
		b.clients = append(b.clients, b.app.client(nc))
	}
	run := uuid.NewString()[:8]
	for i := range b.Towns {
		t := newDriven(fmt.Sprintf("bench-%s-%d", run, i))
		t.server = worldClient(b.clients[i%b.Concurrency%len(b.clients)], b.worlds[i%len(b.worlds)])
		if _, err := t.server.PutTown(ctx, t.state.Snapshot, client.Put{}); err != nil {
			return fmt.Errorf("town %s: %w", t.state.Snapshot.TownID, err)
		}
		b.towns = append(b.towns, t)
	}
	return nil
}

// removeTowns removes the towns of the benchmark, even if it was interrupted. A client that may not
// remove towns leaves them.
func (b *bench) removeTowns(ctx context.Context) {
	for _, t := range b.towns {
		_, err := t.server.RemoveTown(context.WithoutCancel(ctx), t.state.Snapshot.TownID)
		if err != nil {
			return
		}
	}
}

func (b *bench) client() *client.Client { return b.clients[0] }

// handoffs drives the towns for a duration, at a total rate, or as fast as they answer if rate is
// 0.
func (b *bench) handoffs(
	ctx context.Context, duration time.Duration, rate float64,
) (phase benchPhase, err error) {
	wrong := b.wrong
	server, serverBefore := b.serverCPU(ctx)
	before := platform.ProcessorTime()
	rounds := (b.Towns + b.Concurrency - 1) / b.Concurrency
	phase.benchRate, err = b.drive(ctx, duration, rate, rounds, func(worker, round int) error {
		mine := (b.Towns - worker + b.Concurrency - 1) / b.Concurrency
		town := b.towns[worker+round%mine*b.Concurrency]
		return b.send(ctx, town)
	})
	if err != nil {
		return phase, err
	}
	n := float64(phase.Count)
	phase.Executed = phase.PerSecond * (1 - float64(b.wrong-wrong)/n)
	phase.CPUMicros = float64((platform.ProcessorTime() - before).Microseconds()) / n
	if same, after := b.serverCPU(ctx); same == server {
		phase.ServerCPUMicros = float64((after - serverBefore).Microseconds()) / n
	}
	return phase, nil
}

// serverCPU returns the id of the server that writes, and its processor time so far; both are zero
// if this user may not see them.
func (b *bench) serverCPU(ctx context.Context) (id string, used time.Duration) {
	status, err := b.client().WorldStatus(ctx)
	if err != nil {
		return "", 0
	}
	for i := range status.Servers {
		if s := &status.Servers[i]; s.Stats != nil {
			return s.ID, time.Duration(s.Stats.ProcessorMs) * time.Millisecond
		}
	}
	return "", 0
}

// drive lets each worker call do until the duration is over; without a rate, at least rounds times.
// The first error ends all workers.
func (b *bench) drive(
	ctx context.Context, duration time.Duration, rate float64, rounds int,
	do func(worker, round int) error,
) (benchRate, error) {
	workers, working := errgroup.WithContext(ctx)
	latencies := make([][]time.Duration, b.Concurrency)
	var sent atomic.Int64
	runtime.GC()
	start := time.Now()
	for i := range latencies {
		latencies[i] = make([]time.Duration, 0, 1<<14)
		workers.Go(func() error {
			for round := 0; ; round++ {
				due := time.Now()
				if rate > 0 {
					due = start.Add(time.Duration(float64(sent.Add(1)-1) / rate * float64(time.Second)))
				}
				if due.Sub(start) >= duration && (rate > 0 || round >= rounds) ||
					working.Err() != nil || rate > 0 && backoff.Sleep(working, time.Until(due)) != nil {
					return nil
				}
				if err := do(i, round); err != nil {
					return err
				}
				latencies[i] = append(latencies[i], time.Since(due))
			}
		})
	}
	err := workers.Wait()
	elapsed := time.Since(start)
	if err == nil && ctx.Err() != nil {
		err = unavailablef("INTERRUPTED", ctx.Err(), "interrupted")
	}
	return rateOf(slices.Concat(latencies...), elapsed), err
}

// echo measures plain request-reply with messages of the sizes of a handoff and its result. The
// responder has a connection of its own.
func (b *bench) echo(ctx context.Context, report *benchReport) error {
	data, answer := make([]byte, b.towns[0].size), make([]byte, len(b.towns[0].last))
	report.HandoffBytes, report.ResultBytes = len(data), len(answer)
	responder, err := b.app.dial("handoffctl bench echo")
	if err != nil {
		return err
	}
	subject := responder.NewInbox()
	_, err = responder.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(answer) })
	if err := errors.Join(err, responder.Flush()); err != nil {
		return unavailable("CONNECTION", err)
	}
	report.Echo, err = b.drive(ctx, b.Duration, 0, 1, func(worker, _ int) error {
		nc := b.clients[worker%len(b.clients)].Conn
		if _, err := nc.Request(subject, data, b.app.flags.Timeout); err != nil {
			return unavailable("CONNECTION", err)
		}
		return nil
	})
	return err
}

// append measures guarded appends of messages as large as a commit of the benchmark, to a separate
// stream on the same server. It fails if this client may not make streams.
func (b *bench) append(ctx context.Context) (*benchAppend, error) {
	var connections []jetstream.JetStream
	for range b.Connections {
		nc, err := b.app.dialStreams("handoffctl bench append")
		if err != nil {
			return nil, err
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, err
		}
		connections = append(connections, js)
	}
	name, size, err := b.appendStream(ctx, connections[0])
	if err != nil {
		return nil, err
	}
	defer func() { _ = connections[0].DeleteStream(context.WithoutCancel(ctx), name) }()
	guards, data := make([]uint64, b.Concurrency), make([]byte, size)
	rate, err := b.drive(ctx, b.Duration, 0, 1, func(worker, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, b.app.flags.Timeout)
		defer cancel()
		ack, err := connections[worker%len(connections)].Publish(ctx,
			name+"."+strconv.Itoa(worker), data,
			jetstream.WithExpectLastSequencePerSubject(guards[worker]))
		if err == nil {
			guards[worker] = ack.Sequence
		}
		return err
	})
	return &benchAppend{benchRate: rate, Bytes: size}, err
}

// appendStream makes a stream like the log, and returns its name and the size of a commit.
func (b *bench) appendStream(ctx context.Context, js jetstream.JetStream) (string, int, error) {
	world := b.app.flags.World
	log, err := js.Stream(ctx, wire.LogStream(world))
	if err != nil {
		return "", 0, fmt.Errorf("the log: %w", err)
	}
	town := wire.TownToken(b.towns[0].state.Snapshot.TownID)
	last, err := log.GetLastMsgForSubject(ctx, wire.LogSubject(world, town))
	if err != nil {
		return "", 0, fmt.Errorf("the last commit of a town: %w", err)
	}
	config, name := log.CachedInfo().Config, "BENCH_"+uuid.NewString()[:8]
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".*"}, Replicas: config.Replicas,
		MaxMsgsPerSubject: config.MaxMsgsPerSubject, Duplicates: config.Duplicates,
	})
	if err != nil {
		return "", 0, fmt.Errorf("a stream to append to: %w", err)
	}
	commit := nats.Msg{Header: last.Header, Data: last.Data}
	return name, commit.Size(), nil
}

// Package bench measures executed handoffs against plain request-reply and against bare guarded appends,
// in one go on one NATS server. The rules predict each result, so it checks every answer.
package bench

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
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/wire"
)

// Config configures a measurement, by the flags of handoffctl bench.
type Config struct {
	Towns       int           `help:"Number of towns to drive." default:"64"`
	Concurrency int           `help:"Number of requests in flight; at most one per town." default:"64"`
	Connections int           `help:"Number of client connections that the requests share." default:"4"`
	Duration    time.Duration `help:"Length of each phase: echo, handoffs, appends. Without --rate every town gets at least one handoff in a phase." default:"5s"`
	Phases      int           `help:"Number of phases of handoffs, one after another, on the same towns." default:"1"`
	Rate        float64       `help:"Handoffs to send per second; 0 for as many as are answered." default:"0"`
	Sync        embedded.Sync `help:"When the private server writes a commit to disk: every two seconds (interval) or before the answer (always)." enum:"interval,always" default:"interval"`
	Worlds      int           `help:"Number of worlds of the private server. If there are several, each phase of handoffs in one world is followed by one of as many towns spread over all of them." default:"1"`
	Flood       int           `help:"Number of handoffs in flight in another world, without a pause, during a further phase after each. Requires --worlds of at least 2." default:"0"`
	Join        bool          `help:"Measure the server of --server instead of a private one. The run removes its towns at the end, if this user may remove towns."`
}

// Validate returns an error for settings that allow no measurement.
func (c *Config) Validate() error {
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

// WorldNames returns the names of the worlds that the benchmark needs; the first one is given.
func (c *Config) WorldNames(first string) []string {
	names := []string{first}
	for i := 2; i <= c.Worlds; i++ {
		names = append(names, fmt.Sprintf("bench-world-%d", i))
	}
	return names
}

// Target is the world that is measured. DialStreams makes a connection that may read the log of the world
// and make streams.
type Target struct {
	World             string
	Timeout           time.Duration
	Dial, DialStreams func(name string, more ...nats.Option) (*nats.Conn, error)
}

func (t *Target) client(nc *nats.Conn, world string) *client.Client {
	return &client.Client{Conn: nc, World: world, Timeout: t.Timeout}
}

// workload drives towns.
type workload struct {
	*Config
	target  Target
	worlds  []string // that the towns are in, by turns
	clients []*client.Client
	towns   []*benchTown

	mu       sync.Mutex // for the wrong answers
	wrong    int
	examples []string
}

// Run measures all phases. Wrong answers are in the report. It fails if the server cannot be
// reached, or refuses to be measured.
func Run(ctx context.Context, config *Config, target Target) (*Report, error) {
	worlds := config.WorldNames(target.World)
	l := &workload{Config: config, target: target, worlds: worlds[:1]}
	s := &workloads{main: l}
	if config.Worlds > 1 {
		s.spread = &workload{Config: config, target: target, worlds: worlds}
	}
	if config.Flood > 0 {
		s.flood = &workload{target: target, worlds: worlds[len(worlds)-1:], Config: &Config{
			Towns: config.Flood, Concurrency: config.Flood, Connections: config.Connections,
			Duration: config.Duration + floodDelay,
		}}
	}
	defer l.removeTowns(ctx)
	for _, one := range s.all() {
		if err := one.setUp(ctx); err != nil {
			return nil, err
		}
	}
	r := &Report{
		Server: l.client().Conn.ConnectedUrlRedacted(), World: target.World, Towns: l.Towns,
		Concurrency: l.Concurrency, Connections: l.Connections, Seconds: l.Duration.Seconds(),
		Rate: l.Rate, InProcess: !l.Join,
	}
	if r.InProcess {
		r.Sync = string(l.Sync)
	}
	err := s.measure(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Append, err = l.append(ctx); err != nil {
		r.AppendUnknown = phrase.Sentence(err)
	} else {
		r.OfAppend = r.Executed / r.Append.PerSecond
	}
	err = nil
	for _, one := range s.all() {
		err = errors.Join(err, one.checkTowns(ctx))
		r.Wrong, r.Examples = r.Wrong+one.wrong, append(r.Examples, one.examples...)
	}
	return r, err
}

// phase makes handoffs ahead, and drives the towns for the duration.
func (l *workload) phase(ctx context.Context, expected float64) (Phase, error) {
	if err := l.makeAhead(expected); err != nil {
		return Phase{}, err
	}
	return l.handoffs(ctx, l.Duration, l.Rate)
}

// makeAhead makes about as many handoffs as a phase needs.
func (l *workload) makeAhead(expected float64) error {
	return l.prepare(int(1.5*expected*l.Duration.Seconds()/float64(l.Towns)) + 100)
}

// setUp makes the connections, and puts towns with new ids.
func (l *workload) setUp(ctx context.Context) error {
	for range l.Connections {
		nc, err := l.target.Dial("handoffctl bench client")
		if err != nil {
			return err
		}
		l.clients = append(l.clients, l.target.client(nc, l.target.World))
	}
	run := uuid.NewString()[:8]
	for i := range l.Towns {
		t := newBenchTown(fmt.Sprintf("bench-%s-%d", run, i))
		t.server = l.target.client(l.clients[i%l.Concurrency%len(l.clients)].Conn, l.worlds[i%len(l.worlds)])
		if _, err := t.server.PutTown(ctx, t.state.Snapshot, client.Put{}); err != nil {
			return fmt.Errorf("town %s: %w", t.state.Snapshot.TownID, err)
		}
		l.towns = append(l.towns, t)
	}
	return nil
}

// removeTowns removes the towns of the benchmark, even if it was interrupted. A client that may not
// remove towns leaves them.
func (l *workload) removeTowns(ctx context.Context) {
	for _, t := range l.towns {
		_, err := t.server.RemoveTown(context.WithoutCancel(ctx), t.state.Snapshot.TownID)
		if err != nil {
			return
		}
	}
}

func (l *workload) client() *client.Client { return l.clients[0] }

// handoffs drives the towns for a duration, at a total rate, or as fast as they answer if rate is
// 0.
func (l *workload) handoffs(
	ctx context.Context, duration time.Duration, rate float64,
) (phase Phase, err error) {
	wrong := l.wrong
	server, serverBefore := l.serverCPU(ctx)
	before := platform.ProcessorTime()
	rounds := (l.Towns + l.Concurrency - 1) / l.Concurrency
	phase.Rate, err = l.drive(ctx, duration, rate, rounds, func(worker, round int) error {
		mine := (l.Towns - worker + l.Concurrency - 1) / l.Concurrency
		town := l.towns[worker+round%mine*l.Concurrency]
		return l.send(ctx, town)
	})
	if err != nil {
		return phase, err
	}
	n := float64(phase.Count)
	phase.Executed = phase.PerSecond * (1 - float64(l.wrong-wrong)/n)
	phase.CPUMicros = float64((platform.ProcessorTime() - before).Microseconds()) / n
	if same, after := l.serverCPU(ctx); same == server {
		phase.ServerCPUMicros = float64((after - serverBefore).Microseconds()) / n
	}
	return phase, nil
}

// serverCPU returns the id of the server that writes, and its processor time so far; both are zero
// if this user may not see them.
func (l *workload) serverCPU(ctx context.Context) (id string, used time.Duration) {
	status, err := l.client().WorldStatus(ctx)
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
func (l *workload) drive(
	ctx context.Context, duration time.Duration, rate float64, rounds int,
	do func(worker, round int) error,
) (Rate, error) {
	workers, working := errgroup.WithContext(ctx)
	latencies := make([][]time.Duration, l.Concurrency)
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
		err = &client.UnavailableError{Code: "INTERRUPTED", Cause: ctx.Err(), Message: "interrupted"}
	}
	return rateOf(slices.Concat(latencies...), elapsed), err
}

// echo measures plain request-reply with messages of the sizes of a handoff and its result. The
// responder has a connection of its own.
func (l *workload) echo(ctx context.Context, report *Report) error {
	data, answer := make([]byte, l.towns[0].size), make([]byte, len(l.towns[0].last))
	report.HandoffBytes, report.ResultBytes = len(data), len(answer)
	responder, err := l.target.Dial("handoffctl bench echo")
	if err != nil {
		return err
	}
	subject := responder.NewInbox()
	_, err = responder.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(answer) })
	if err := errors.Join(err, responder.Flush()); err != nil {
		return unconnected(err)
	}
	report.Echo, err = l.drive(ctx, l.Duration, 0, 1, func(worker, _ int) error {
		nc := l.clients[worker%len(l.clients)].Conn
		if _, err := nc.Request(subject, data, l.target.Timeout); err != nil {
			return unconnected(err)
		}
		return nil
	})
	return err
}

// append measures guarded appends of messages as large as a commit of the benchmark, to a separate
// stream on the same server. It fails if this client may not make streams.
func (l *workload) append(ctx context.Context) (*Append, error) {
	var connections []jetstream.JetStream
	for range l.Connections {
		nc, err := l.target.DialStreams("handoffctl bench append")
		if err != nil {
			return nil, err
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, err
		}
		connections = append(connections, js)
	}
	name, size, err := l.appendStream(ctx, connections[0])
	if err != nil {
		return nil, err
	}
	defer func() { _ = connections[0].DeleteStream(context.WithoutCancel(ctx), name) }()
	guards, data := make([]uint64, l.Concurrency), make([]byte, size)
	rate, err := l.drive(ctx, l.Duration, 0, 1, func(worker, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, l.target.Timeout)
		defer cancel()
		ack, err := connections[worker%len(connections)].Publish(ctx,
			name+"."+strconv.Itoa(worker), data,
			jetstream.WithExpectLastSequencePerSubject(guards[worker]))
		if err == nil {
			guards[worker] = ack.Sequence
		}
		return err
	})
	return &Append{Rate: rate, Bytes: size}, err
}

// appendStream makes a stream like the log, and returns its name and the size of a commit.
func (l *workload) appendStream(ctx context.Context, js jetstream.JetStream) (string, int, error) {
	world := l.target.World
	log, err := js.Stream(ctx, layout.LogStream(world))
	if err != nil {
		return "", 0, fmt.Errorf("the log: %w", err)
	}
	town := wire.TownToken(l.towns[0].state.Snapshot.TownID)
	last, err := log.GetLastMsgForSubject(ctx, layout.LogSubject(world, town))
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

// unconnected is the error of a request without an answer.
func unconnected(err error) error {
	return &client.UnavailableError{Code: "CONNECTION", Cause: err, Message: phrase.Sentence(err)}
}

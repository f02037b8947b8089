package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/platform"
	"worldengine/worldengine/wire"
)

// Append is what a handoff is bound by: a guarded append of a message as large as a commit of the
// run, to a stream of its own on the same server, with as many in flight as handoffs.
type Append struct {
	Rate
	// Bytes is the size of the message, with its headers.
	Bytes int `json:"bytes"`
	// CPUMicros is the processor time of this process for one append.
	CPUMicros float64 `json:"cpuMicros"`
}

// measureAppend appends for as long as a phase is. It fails where this client may not make streams.
func (b *bench) measureAppend(ctx context.Context) (*Append, error) {
	if b.config.Streams == nil {
		return nil, errNoStreams
	}
	var connections []jetstream.JetStream
	for range b.config.Connections {
		nc, err := b.config.Streams("handoffctl bench append")
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, fmt.Errorf("bench: JetStream: %w", err)
		}
		connections = append(connections, js)
	}
	name, commit, remove, err := b.appendStream(ctx, connections[0])
	if err != nil {
		return nil, err
	}
	defer remove()
	appenders := make([]*appender, b.config.Concurrency)
	runs := make([]func(context.Context, time.Time) error, len(appenders))
	for i := range appenders {
		appenders[i] = &appender{
			js: connections[i%len(connections)], commit: commit, timeout: b.config.Timeout,
			subject: name + "." + strconv.Itoa(i),
		}
		runs[i] = appenders[i].run
	}
	before := platform.ProcessorTime()
	elapsed, err := timed(ctx, time.Now(), b.config.Duration, runs)
	if err != nil {
		return nil, err
	}
	cpu := platform.ProcessorTime() - before
	var all []time.Duration
	for _, a := range appenders {
		all = append(all, a.latencies...)
	}
	return &Append{
		Rate:  rateOf(all, elapsed),
		Bytes: commit.Size(), CPUMicros: float64(cpu.Microseconds()) / float64(max(len(all), 1)),
	}, nil
}

var errNoStreams = errors.New("bench: there is no connection that may use the streams")

// appendStream makes a stream like the log, and returns its name, the last commit of the run, and
// what removes it.
func (b *bench) appendStream(ctx context.Context, js jetstream.JetStream) (
	name string, commit *nats.Msg, remove func(), err error,
) {
	log, err := js.Stream(ctx, wire.LogStream(b.config.World))
	if err != nil {
		return "", nil, nil, fmt.Errorf("bench: the log: %w", err)
	}
	last, err := log.GetLastMsgForSubject(ctx,
		wire.LogSubject(b.config.World, wire.TownToken(b.targets[0].id)))
	if err != nil {
		return "", nil, nil, fmt.Errorf("bench: the last commit of a town: %w", err)
	}
	config := log.CachedInfo().Config
	name = "BENCH_" + uuid.NewString()[:8]
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".*"}, Replicas: config.Replicas,
		MaxMsgsPerSubject: config.MaxMsgsPerSubject, Duplicates: config.Duplicates,
	})
	if err != nil {
		return "", nil, nil, fmt.Errorf("bench: a stream to append to: %w", err)
	}
	remove = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.Timeout)
		defer cancel()
		_ = js.DeleteStream(ctx, name)
	}
	return name, &nats.Msg{Header: last.Header, Data: last.Data}, remove, nil
}

// appender appends one message after another to a subject of its own.
type appender struct {
	js        jetstream.JetStream
	commit    *nats.Msg
	subject   string
	timeout   time.Duration
	latencies []time.Duration
}

// run appends until the deadline, and at least once.
func (a *appender) run(ctx context.Context, deadline time.Time) error {
	msg := &nats.Msg{Subject: a.subject, Header: maps.Clone(a.commit.Header), Data: a.commit.Data}
	for _, of := range [...]string{ // the commit's own message, or its batch
		jetstream.MsgIDHeader, "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit",
	} {
		delete(msg.Header, of)
	}
	for guard := uint64(0); ; {
		start := time.Now()
		if len(a.latencies) > 0 && !start.Before(deadline) || ctx.Err() != nil {
			return ctx.Err()
		}
		msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(guard, 10))
		bounded, cancel := context.WithTimeout(ctx, a.timeout)
		ack, err := a.js.PublishMsg(bounded, msg)
		cancel()
		if err != nil {
			return fmt.Errorf("bench: an append: %w", err)
		}
		guard = ack.Sequence
		a.latencies = append(a.latencies, time.Since(start))
	}
}

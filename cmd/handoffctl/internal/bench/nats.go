package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// echo measures plain request-reply with messages of the sizes of a handoff and its result. The
// responder has a connection of its own.
func (b *bench) echo(ctx context.Context, report *Report) error {
	data, answer := make([]byte, b.towns[0].size), make([]byte, len(b.towns[0].last))
	report.HandoffBytes, report.ResultBytes = len(data), len(answer)
	responder, err := b.connect(b.Connect, "echo")
	if err != nil {
		return err
	}
	subject := responder.NewInbox()
	_, err = responder.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(answer) })
	if err := errors.Join(err, responder.Flush()); err != nil {
		return fmt.Errorf("bench: the echo cannot be started: %w", err)
	}
	report.Echo, err = b.drive(ctx, b.Duration, 0, 1, func(worker, _ int) error {
		_, err := b.clients[worker%len(b.clients)].Request(subject, data, b.Timeout)
		if err != nil {
			return unanswered(err, b.Timeout)
		}
		return nil
	})
	return err
}

// append measures guarded appends of messages as large as a commit of the run, to a stream of its
// own on the same server. It fails if this client may not make streams.
func (b *bench) append(ctx context.Context) (*Append, error) {
	if b.Streams == nil {
		return nil, errors.New("bench: there is no connection that may use the streams")
	}
	var connections []jetstream.JetStream
	for range b.Connections {
		nc, err := b.connect(b.Streams, "append")
		if err != nil {
			return nil, err
		}
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, fmt.Errorf("bench: JetStream: %w", err)
		}
		connections = append(connections, js)
	}
	name, size, err := b.appendStream(ctx, connections[0])
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.Timeout)
		defer cancel()
		_ = connections[0].DeleteStream(ctx, name)
	}()
	guards, data := make([]uint64, b.Concurrency), make([]byte, size)
	rate, err := b.drive(ctx, b.Duration, 0, 1, func(worker, _ int) error {
		ctx, cancel := context.WithTimeout(ctx, b.Timeout)
		defer cancel()
		ack, err := connections[worker%len(connections)].Publish(ctx,
			name+"."+strconv.Itoa(worker), data,
			jetstream.WithExpectLastSequencePerSubject(guards[worker]))
		if err != nil {
			return fmt.Errorf("bench: an append: %w", err)
		}
		guards[worker] = ack.Sequence
		return nil
	})
	return &Append{Rate: rate, Bytes: size}, err
}

// appendStream makes a stream like the log, and returns its name and the size of a commit.
func (b *bench) appendStream(ctx context.Context, js jetstream.JetStream) (string, int, error) {
	log, err := js.Stream(ctx, wire.LogStream(b.World))
	if err != nil {
		return "", 0, fmt.Errorf("bench: the log: %w", err)
	}
	last, err := log.GetLastMsgForSubject(ctx,
		wire.LogSubject(b.World, wire.TownToken(b.towns[0].state.Snapshot.TownID)))
	if err != nil {
		return "", 0, fmt.Errorf("bench: the last commit of a town: %w", err)
	}
	config, name := log.CachedInfo().Config, "BENCH_"+uuid.NewString()[:8]
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".*"}, Replicas: config.Replicas,
		MaxMsgsPerSubject: config.MaxMsgsPerSubject, Duplicates: config.Duplicates,
	})
	if err != nil {
		return "", 0, fmt.Errorf("bench: a stream to append to: %w", err)
	}
	commit := nats.Msg{Header: last.Header, Data: last.Data}
	return name, commit.Size(), nil
}

// serverCPU returns the processor time of the first instance that answers, and its id; both are
// empty if none does.
func serverCPU(
	ctx context.Context, nc *nats.Conn, world string,
) (instance string, used time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reply, err := nc.RequestWithContext(ctx, "$SRV.STATS."+wire.ServiceName, nil)
	if err != nil {
		return "", 0
	}
	var said struct {
		ID       string `json:"id"`
		Metadata struct {
			World string `json:"world"`
		} `json:"metadata"`
		Endpoints []struct {
			Data messages.Stats `json:"data"`
		} `json:"endpoints"`
	}
	if json.Unmarshal(reply.Data, &said) != nil || len(said.Endpoints) == 0 ||
		said.Metadata.World != world {
		return "", 0
	}
	return said.ID, time.Duration(said.Endpoints[0].Data.ProcessorMs) * time.Millisecond
}

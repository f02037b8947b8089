package commitlog

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// EventStreamConfig is the stream of a world's run events: derived, as dedupe.StreamConfig is. NATS
// compresses a block of it once the block is full. The log and the receipts it compresses only with
// CompressAll: a bit that the disk changes then costs a block, and not a message, and a look-up of
// a receipt reads a block. It compresses nothing in a cluster: a replica that comes back after a
// kill may have to cut off the end of a block, cannot do so in a compressed one, and stands still
// for good (nats-server 2.15).
func EventStreamConfig(
	world string, retention time.Duration, limit int64, replicas int,
) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name:        wire.EventStream(world),
		Description: "Run events (RunEvents v2.0.1), derived from the commit log of " + world,
		Subjects:    []string{wire.EventSubject(world, "*", "*")},
		MaxAge:      retention,
		MaxMsgs:     limit,
		AllowDirect: replicas <= 1,
		Replicas:    max(replicas, 1),
		// the least; guards do its work, and it stalls a follower
		Duplicates: 100 * time.Millisecond,
	}
	if replicas <= 1 {
		config.PersistMode = jetstream.AsyncPersistMode
		config.Compression = jetstream.S2Compression
	} else {
		config.Duplicates = time.Second // there it keeps the messages of racing followers apart
	}
	return config
}

// DeriveReceipts returns what makes the receipt of an accepted handoff's log message.
func DeriveReceipts(world string) func(jetstream.Msg) ([]*nats.Msg, error) {
	return func(msg jetstream.Msg) ([]*nats.Msg, error) {
		if Kind(msg.Headers().Get(wire.KindHeader)) != KindHandoff {
			return nil, nil
		}
		decided, err := decidedBy(msg)
		if err != nil {
			return nil, err
		}
		ids, err := decided.ids()
		if err != nil {
			return nil, err
		}
		receipt := dedupe.Receipt{
			Place:  ReceiptPlace(decided.TownID, ids.IdempotencyKey),
			TownID: decided.TownID, RunID: msg.Headers().Get(wire.RunIDHeader),
			HandoffID: ids.HandoffID, ResultID: ids.ResultID, Result: decided.Result,
			Addition: decided.Addition,
		}
		derived, err := receipt.Message(world)
		if err != nil {
			return nil, err
		}
		return []*nats.Msg{derived}, nil
	}
}

// ReceiptPlace is where the receipt of a key that a town accepted stands.
func ReceiptPlace(townID, key string) dedupe.Place {
	return dedupe.Place{Town: wire.TokenOf(townID), Key: key}
}

// DeriveEvents returns what makes the run events of a log message. Their persistedAt is the time
// at which the log's stream stored the message: it is the append authority.
func DeriveEvents(world string) func(jetstream.Msg) ([]*nats.Msg, error) {
	return func(msg jetstream.Msg) ([]*nats.Msg, error) {
		kind := Kind(msg.Headers().Get(wire.KindHeader))
		if kind == KindPut {
			return nil, nil
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("worldengine: a log message without metadata: %w", err)
		}
		decided, err := decidedBy(msg)
		if err != nil || decided.Run == nil {
			return nil, err
		}
		messages, err := eventMessages(world, wire.TokenOf(decided.TownID), decided.Run,
			meta.Timestamp)
		if !decided.Run.Trace.IsZero() {
			for _, m := range messages {
				m.Header = decided.Run.Trace.Header(m.Header)
			}
		}
		if kind == KindEvents {
			for _, m := range messages {
				m.Header[wire.KindHeader] = []string{string(kind)}
			}
		}
		return messages, err
	}
}

// eventMessages returns the bus messages of a run's events, persisted at a time.
func eventMessages(
	world, token string, run *runevents.Run, persistedAt time.Time,
) ([]*nats.Msg, error) {
	bodies, ends, err := run.AppendRecords(nil, persistedAt)
	if err != nil {
		return nil, fmt.Errorf("worldengine: the events of run %s: %w", run.RunID, err)
	}
	subject := wire.EventSubject(world, token, run.RunID)
	memory := make([]nats.Msg, len(run.Events))
	messages := make([]*nats.Msg, len(run.Events))
	start := 0
	for i, end := range ends {
		values := [...]string{string(run.Events[i].EventType), run.Events[i].EventID}
		memory[i] = nats.Msg{
			Subject: subject,
			Data:    bodies[start:end:end],
			Header: nats.Header{wire.EventTypeHeader: values[:1:1],
				jetstream.MsgIDHeader: values[1:]},
		}
		messages[i], start = &memory[i], end
	}
	return messages, nil
}

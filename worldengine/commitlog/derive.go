package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/wire"
)

// EventStreamConfig is the stream of a world's run events. It is derived, so it is persisted
// asynchronously: after a crash its end is written again from the log. NATS compresses a block of
// it once the block is full, and the log only with CompressAll: a bit that the disk changes then
// costs a block, and not a message. It compresses nothing in a cluster: a replica that comes back after a
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

// errNoHeaders: a message of the log is not of an engine, or was tampered with.
var errNoHeaders = errors.New("worldengine: a message of the log has no headers that can be decoded")

// DeriveEvents returns a function that makes the run events of a log message. Their persistedAt is
// the time in the message's header At.
func DeriveEvents(world string) func(jetstream.Msg) ([]follow.Message, error) {
	return func(msg jetstream.Msg) ([]follow.Message, error) {
		if len(msg.Headers()) == 0 {
			return nil, errNoHeaders
		}
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
		return eventMessages(world, kind, decided, AtOr(msg.Headers(), meta.Timestamp))
	}
}

// eventMessages returns the bus messages of the events of a record, persisted at a time.
func eventMessages(
	world string, kind Kind, d *decided, persistedAt time.Time,
) ([]follow.Message, error) {
	run := d.Run
	bodies, ends, err := run.AppendRecords(nil, persistedAt)
	if err != nil {
		return nil, fmt.Errorf("worldengine: the events of run %s: %w", run.RunID, err)
	}
	shared := sharedHeaders(kind, run)
	headers := make([]follow.Header, 0, len(ends)*(1+len(shared)))
	subject := wire.EventSubject(world, wire.TokenOf(d.TownID), run.RunID)
	messages := make([]follow.Message, len(ends))
	start := 0
	for i, end := range ends {
		e, first := &run.Events[i], len(headers)
		headers = append(headers, follow.Header{
			Name: wire.EventTypeHeader, Value: string(e.EventType),
		})
		headers = append(headers, shared...)
		messages[i] = follow.Message{
			Subject: subject, ID: e.EventID, Headers: headers[first:len(headers):len(headers)],
			Data: bodies[start:end:end],
		}
		start = end
	}
	return messages, nil
}

// sharedHeaders returns the headers that all events of a record have, in the order of their names.
func sharedHeaders(kind Kind, run *runevents.Run) (shared []follow.Header) {
	for name, values := range run.Trace.Header(nil) {
		shared = append(shared, follow.Header{Name: name, Value: values[0]})
	}
	if kind == KindEvents {
		shared = append(shared, follow.Header{Name: wire.KindHeader, Value: string(kind)})
	}
	slices.SortFunc(shared, func(a, b follow.Header) int { return cmp.Compare(a.Name, b.Name) })
	return shared
}

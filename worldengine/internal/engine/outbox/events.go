package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// StreamConfig returns the stream of a world's run events. It is compressed, except in a cluster: a
// replica that was killed may have to cut off the end of a block. The replica cannot do so in a
// compressed block, and stops for good (nats-server 2.15).
func StreamConfig(
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
		Duplicates:  100 * time.Millisecond, // the minimum: guards prevent duplicates
	}
	if replicas <= 1 {
		config.PersistMode = jetstream.AsyncPersistMode
		config.Compression = jetstream.S2Compression
	} else {
		config.Duplicates = time.Second // it detects the same message of a racing relay
	}
	return config
}

// errNoHeaders: no engine wrote the message of the log, or somebody changed it.
var errNoHeaders = errors.New("outbox: a message of the log has no headers that can be decoded")

// events returns a message for each run event in a message of the log, without place and guard. The
// events' persistedAt is the log message's header At. It returns an error if the log message cannot
// be read.
func (r *Relay) events(msg *jetstream.RawStreamMsg) ([]*nats.Msg, error) {
	kind := records.KindOf(msg.Header)
	spec := kind.Spec()
	switch {
	case len(msg.Header) == 0:
		return nil, errNoHeaders
	case spec.Run == machine.Never:
		return nil, nil
	}
	rec, err := records.Read(msg.Data)
	if err != nil || rec.Run == nil {
		return nil, err
	}
	bodies, err := rec.Run.RecordsJSON(commitlog.PersistedAt(msg.Header, msg.Time))
	if err != nil {
		return nil, fmt.Errorf("outbox: the events of run %s: %w", rec.Run.RunID, err)
	}
	subject := wire.EventSubject(r.config.World, layout.TokenOf(rec.TownID),
		layout.RunToken(rec.Run.RunID))
	messages := make([]*nats.Msg, len(bodies))
	for i, body := range bodies {
		event := &rec.Run.Events[i]
		header := rec.Run.Trace.Inject(nats.Header{
			wire.EventTypeHeader:  {string(event.EventType)},
			jetstream.MsgIDHeader: {event.EventID},
		})
		if spec.Foreign {
			header[layout.KindHeader] = []string{string(kind)}
		}
		messages[i] = &nats.Msg{Subject: subject, Header: header, Data: body}
	}
	return messages, nil
}

// logPosition is an event's place: its log message, and its number among that message's events.
type logPosition struct {
	logSeq uint64
	part   int
}

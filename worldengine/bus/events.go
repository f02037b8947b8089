package bus

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// StreamConfig is the stream of a world's run events. NATS compresses each full block, but nothing
// in a cluster: a replica that comes back after a kill may have to cut off the end of a block,
// cannot do so in a compressed one, and stops for good (nats-server 2.15).
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
		Duplicates:  100 * time.Millisecond, // the least: the guards do its work
	}
	if replicas <= 1 {
		config.PersistMode = jetstream.AsyncPersistMode
		config.Compression = jetstream.S2Compression
	} else {
		config.Duplicates = time.Second // it keeps the messages of racing sinks apart
	}
	return config
}

// errNoHeaders: a message of the log is not an engine's, or was tampered with.
var errNoHeaders = errors.New("bus: a message of the log has no headers that can be decoded")

// events returns the messages of the run events in a message of the log, without their places and
// guards. Their persistedAt is its header At. An error means that the message cannot be read.
func (s *Sink) events(msg *jetstream.RawStreamMsg) ([]*nats.Msg, error) {
	kind := commitlog.Kind(msg.Header.Get(wire.KindHeader))
	switch {
	case len(msg.Header) == 0:
		return nil, errNoHeaders
	case kind == commitlog.KindPut:
		return nil, nil
	}
	rec, err := commitlog.ReadRecord(msg.Data)
	if err != nil || rec.Run == nil {
		return nil, err
	}
	bodies, ends, err := rec.Run.AppendRecords(nil, commitlog.At(msg))
	if err != nil {
		return nil, fmt.Errorf("bus: the events of run %s: %w", rec.Run.RunID, err)
	}
	subject := wire.EventSubject(s.config.World, wire.TokenOf(rec.TownID), rec.Run.RunID)
	messages, start := make([]*nats.Msg, len(ends)), 0
	for i, end := range ends {
		event := &rec.Run.Events[i]
		header := rec.Run.Trace.Header(nats.Header{
			wire.EventTypeHeader:  {string(event.EventType)},
			jetstream.MsgIDHeader: {event.EventID},
		})
		if kind == commitlog.KindEvents {
			header[wire.KindHeader] = []string{string(kind)}
		}
		messages[i] = &nats.Msg{Subject: subject, Header: header, Data: bodies[start:end:end]}
		start = end
	}
	return messages, nil
}

// place is an event's place: its log message, and its number among that message's events.
type place struct {
	logSeq uint64
	part   int
}

// chain is the end of the stream once all messages in transit are stored. Each message names it
// twice: by its sequence, and, from the second message of a try on, by its Nats-Msg-Id. The sequence
// alone is not enough: if another sink's message has taken the place of one of ours, our next one
// finds the stream as long as it expects.
//
// In a replicated stream the sequence has to suffice, with the stream's own duplicate window: each
// replica checks the id by itself when it applies a message, and one that has just caught up does
// not know it, and stops for good with a critical write error (nats-server 2.15). Another sink puts
// the same message in the place of one of ours, unless one of the two has given an event up.
type chain struct {
	seq        uint64
	at         place
	id         string
	replicated bool
}

// link gives an event its place in the log and its guards, and returns the end behind it.
func (c chain) link(m *nats.Msg, at place) chain {
	m.Header[wire.LogSeqHeader] = []string{strconv.FormatUint(at.logSeq, 10)}
	m.Header[wire.LogPartHeader] = []string{strconv.Itoa(at.part)}
	m.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(c.seq, 10)}
	if c.id != "" && !c.replicated {
		m.Header[jetstream.ExpectedLastMsgIDHeader] = []string{c.id}
	}
	return chain{
		seq: c.seq + 1, at: at, id: m.Header.Get(jetstream.MsgIDHeader), replicated: c.replicated,
	}
}

package follow

import (
	"cmp"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Message is what a derived stream is to have of a message of the log, without its place there and
// its guards.
type Message struct {
	Subject string
	// ID is its Nats-Msg-Id; "" for one that is made of its place.
	ID      string
	Headers []Header // the others
	Data    []byte
}

// Header is a header of a Message.
type Header struct{ Name, Value string }

// Msg returns the message as NATS takes it.
func (m *Message) Msg() *nats.Msg {
	s := newSending()
	s.fill(m)
	if m.ID != "" {
		s.set(jetstream.MsgIDHeader, m.ID)
	}
	return &s.msg
}

// size returns about how many bytes the message takes on its way.
func (m *Message) size() int {
	size := len(m.Subject) + len(m.ID) + len(m.Data)
	for _, h := range m.Headers {
		size += len(h.Name) + len(h.Value)
	}
	return size
}

// sending is a message that is being sent. It may be filled again as soon as PublishMsg has
// returned, since that copies its bytes: so the ten messages of a handoff share one header. What
// waits for an ack keeps its message, and needs a sending of its own.
type sending struct {
	msg    nats.Msg
	values []string // of msg.Header, which has a part of it for each name
}

func newSending() *sending {
	return &sending{msg: nats.Msg{Header: nats.Header{}}, values: make([]string, 0, usualHeaders)}
}

// usualHeaders is how many headers a derived message mostly has.
const usualHeaders = 6

// fill makes the sending one of m without its id, and with nothing else.
func (s *sending) fill(m *Message) {
	clear(s.msg.Header)
	s.values = s.values[:0]
	s.msg.Subject, s.msg.Data = m.Subject, m.Data
	for _, h := range m.Headers {
		s.set(h.Name, h.Value)
	}
}

func (s *sending) set(name, value string) {
	n := len(s.values)
	s.values = append(s.values, value)
	s.msg.Header[name] = s.values[n : n+1 : n+1]
}

// chain is the end of the derived stream once all is stored that is on its way. Each message names
// it twice: by its sequence, and, from the second message on, by its Nats-Msg-Id. The sequence
// alone would not do: where another follower's message has taken the place of one of ours, the next
// of ours finds the stream as long as it expects.
//
// In a replicated stream the sequence has to do, with the stream's own duplicate window: each
// replica checks the id by itself when it applies a message, one that has just caught up does not
// know it, and then stops for good with a critical write error (nats-server 2.15). What another
// follower puts in the place of one of ours is the same message, unless one of the two has given
// something up.
type chain struct {
	seq        uint64
	id         string
	replicated bool
}

// link fills s with m and its place in the log, guards it by the end of the derived stream, and
// returns the end that there is behind it.
func (c chain) link(s *sending, m *Message, at place) chain {
	s.fill(m)
	logSeq, part := strconv.FormatUint(at.logSeq, 10), strconv.Itoa(at.part)
	s.set(wire.LogSeqHeader, logSeq)
	s.set(wire.LogPartHeader, part)
	s.set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(c.seq, 10))
	if c.id != "" && !c.replicated {
		s.set(jetstream.ExpectedLastMsgIDHeader, c.id)
	}
	id := cmp.Or(m.ID, logSeq+"."+part)
	s.set(jetstream.MsgIDHeader, id)
	return chain{seq: c.seq + 1, id: id, replicated: c.replicated}
}

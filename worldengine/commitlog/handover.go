package commitlog

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// decided is the part of a record from which run events are derived.
type decided struct {
	TownID string         `json:"townId"`
	Run    *runevents.Run `json:"run"`
}

// decidedBy returns that part of the record of a log message: what Handover.Read added to it, or
// what its bytes say.
func decidedBy(msg jetstream.Msg) (*decided, error) {
	if r, ok := msg.(*readMsg); ok {
		return r.decided()
	}
	d := new(decided)
	if err := json.Unmarshal(msg.Data(), d); err != nil {
		return nil, fmt.Errorf("worldengine: not a commit record: %w", err)
	}
	return d, nil
}

// Handover takes the records that an engine commits to those who derive something from the log, so
// that these need not decode them. It holds the records of the last commits until their messages
// are read from the log. The log decides: a record that was handed over stands for a message only
// where that has the bytes of the record, whatever became of the commit. It is safe for concurrent
// use.
type Handover struct {
	mu    sync.Mutex
	held  map[string]handed // by the id of the run
	order [handoverSize]string
	next  int // the oldest of order
}

// handoverSize bounds the records that are held, and handoverBytes each of them: a larger one is
// decoded by those who derive from it.
const (
	handoverSize  = 256
	handoverBytes = 64 << 10
)

type handed struct {
	data []byte
	decided
}

// NewHandover returns an empty one.
func NewHandover() *Handover { return &Handover{held: map[string]handed{}} }

// Add holds the record of a message that is to be committed. The record has a run.
func (h *Handover) Add(msg *nats.Msg, rec *Record) {
	if len(msg.Data) > handoverBytes {
		return
	}
	run := *rec.Run // its producer may begin anew
	d := handed{msg.Data, decided{rec.TownID, &run}}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, h.order[h.next])
	h.held[run.RunID], h.order[h.next] = d, run.RunID
	h.next = (h.next + 1) % handoverSize
}

// Read returns a message that was read from the log, with its record where that was handed over.
// Where it was not, the message is decoded once however many derive from it.
func (h *Handover) Read(msg jetstream.Msg) jetstream.Msg {
	runID := msg.Headers().Get(wire.RunIDHeader)
	h.mu.Lock()
	d, found := h.held[runID]
	if found && bytes.Equal(d.data, msg.Data()) {
		delete(h.held, runID)
		h.mu.Unlock()
		result := d.decided // not d, whose data the message has too
		return &readMsg{Msg: msg, decided: func() (*decided, error) { return &result, nil }}
	}
	h.mu.Unlock()
	return &readMsg{Msg: msg, decided: sync.OnceValues(func() (*decided, error) {
		return decidedBy(msg)
	})}
}

// readMsg is a message of the log with what its record decided.
type readMsg struct {
	jetstream.Msg
	decided func() (*decided, error)
}

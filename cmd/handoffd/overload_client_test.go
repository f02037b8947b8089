package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// floodInFlight bounds what a connection of the flood waits for. What is due beyond it is not
// offered, and counted.
const floodInFlight = 4096

// flooded is a town of the flood. The flood calls it from several goroutines.
type flooded interface {
	// next returns what is sent next to the town.
	next() floodCall
	// take takes the answer to a call, unless it is a 429, and says whether it is what the model
	// says.
	take(c floodCall, reply *nats.Msg) error
	// refused is told of a 429.
	refused(c floodCall)
}

// floodCall is one request on its way.
type floodCall struct {
	town flooded
	body []byte
	kind int // of the town's own
	sent time.Time
}

// floodConn is a connection that offers calls without waiting for answers.
type floodConn struct {
	flood *flood
	nc    *nats.Conn
	inbox string

	mu       sync.Mutex
	last     uint64
	inFlight map[uint64]floodCall
}

func (f *flood) newConn(nc *nats.Conn) *floodConn {
	c := &floodConn{flood: f, nc: nc, inbox: nc.NewInbox() + ".", inFlight: map[uint64]floodCall{}}
	sub, err := nc.Subscribe(c.inbox+"*", c.take)
	require.NoError(f.t, err)
	require.NoError(f.t, sub.SetPendingLimits(-1, -1)) // bounded by what is in flight
	require.NoError(f.t, nc.Flush())
	return c
}

// offer sends the next call of a town, if the connection may have one more.
func (c *floodConn) offer(town flooded) {
	c.mu.Lock()
	if len(c.inFlight) >= floodInFlight {
		c.mu.Unlock()
		c.flood.counts.notOffered.Add(1)
		return
	}
	call := town.next()
	call.town, call.sent = town, time.Now()
	c.last++
	id := c.last
	c.inFlight[id] = call
	c.mu.Unlock()
	err := c.nc.PublishRequest(wire.Subject("main", "handoff"), c.inbox+strconv.FormatUint(id, 10),
		call.body)
	if err != nil {
		c.flood.t.Errorf("a request cannot be sent: %v", err)
	}
	c.flood.counts.offered.Add(1)
}

func (c *floodConn) waits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inFlight)
}

// take takes a reply, of which there must be one for each request.
func (c *floodConn) take(reply *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(reply.Subject, c.inbox), 10, 64)
	c.mu.Lock()
	call, asked := c.inFlight[id]
	delete(c.inFlight, id)
	c.mu.Unlock()
	if err != nil || !asked {
		c.flood.t.Errorf("a second reply, or one that nobody asked for: %s: %s",
			reply.Subject, reply.Data)
		return
	}
	if reply.Header.Get("Nats-Service-Error-Code") == "429" {
		c.flood.takeRefusal(reply)
		call.town.refused(call)
		return
	}
	if err := call.town.take(call, reply); err != nil {
		c.flood.t.Errorf("%v: %s", err, reply.Data)
	}
	c.flood.admitted(call)
}

// floodCounts are what became of the calls of a flood.
type floodCounts struct{ offered, notOffered, refused, answered, unanswered atomic.Int64 }

// takeRefusal checks a 429. Its body is checked against its schema when it is a new one.
func (f *flood) takeRefusal(reply *nats.Msg) {
	f.counts.refused.Add(1)
	pause, err := strconv.Atoi(reply.Header.Get(wire.RetryAfterHeader))
	if err != nil || pause < 50 || pause > 1000 {
		f.t.Errorf("a 429 with %s %q", wire.RetryAfterHeader,
			reply.Header.Get(wire.RetryAfterHeader))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.longestPause = max(f.longestPause, pause)
	if bytes.Equal(f.refusal, reply.Data) {
		return
	}
	f.refusal = reply.Data
	if _, err := schemas.Parse(schemas.Error, reply.Data, schemas.Limits{}); err != nil ||
		!bytes.Contains(reply.Data, []byte(`"OVERLOADED"`)) ||
		reply.Header.Get("Nats-Service-Error") == "" {
		f.t.Errorf("not a 429: %v: %s", err, reply.Data)
	}
}

// hotTown is a town that everybody sends handoffs of one state to. The model: exactly one of them
// is executed, and a duplicate from then on; every other one is stale, each time with the same
// bytes.
type hotTown struct {
	t      testing.TB
	bodies [][]byte

	mu       sync.Mutex
	turn     int
	first    [][]byte // the first answer to each, unless it executed
	executed int      // which one was; -1 before
	resultID string
}

func newHotTown(t testing.TB, d *driven, handoffs int) *hotTown {
	h := &hotTown{t: t, first: make([][]byte, handoffs), executed: -1}
	for n := range handoffs {
		h.bodies = append(h.bodies, made(t, d, float64(n)/float64(handoffs)))
	}
	return h
}

// made returns a handoff for a town as the model has it. Its priority makes it another one.
func made(t testing.TB, d *driven, priority float64) []byte {
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: d.id,
		Priority: priority, Reason: "Because.",
		Args:         map[string]string{"talkType": "casual"},
		SnapshotHash: d.state.Hash, DecisionEpoch: d.state.Epoch(),
	})
	require.NoError(t, err)
	encoded, err := h.MarshalWire()
	require.NoError(t, err)
	return encoded
}

func (h *hotTown) next() floodCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn = (h.turn + 1) % len(h.bodies)
	return floodCall{body: h.bodies[h.turn], kind: h.turn}
}

func (h *hotTown) refused(floodCall) {}

func (h *hotTown) take(c floodCall, reply *nats.Msg) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(h.first[c.kind], reply.Data) {
		return nil
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	switch {
	case err != nil:
		return err
	case result.Status == handoff.Executed && h.executed < 0:
		h.executed, h.resultID = c.kind, result.ResultID
		return nil
	case h.first[c.kind] != nil:
		return fmt.Errorf("the hot town's handoff %d has a second answer", c.kind)
	}
	h.first[c.kind] = reply.Data
	return nil
}

// verify checks what could not be checked before all answers were there: answers to several
// connections come in any order.
func (h *hotTown) verify() {
	h.t.Helper()
	require.GreaterOrEqual(h.t, h.executed, 0, "no handoff of the hot town was executed")
	for n, data := range h.first {
		if data == nil {
			continue
		}
		result, err := handoff.ParseResult(data, schemas.Limits{})
		require.NoError(h.t, err)
		if n != h.executed {
			require.Equal(h.t, handoff.Stale, result.Status, "%s", data)
			continue
		}
		require.Equal(h.t, handoff.Duplicate, result.Status, "%s", data)
		require.Equal(h.t, h.resultID, *result.Evaluation.DuplicateCheck.DuplicateOf)
	}
}

// coldTown is a town with one client that goes on from state to state, and sends handoffs of a
// state long gone, which are stale, while it waits for an answer.
type coldTown struct {
	hammer *hammer
	gone   []byte

	mu      sync.Mutex
	driven  *driven
	waiting bool // for the answer to driven.open
}

// The kinds of a cold town's calls.
const (
	goesOn = iota
	isGone
)

func (c *coldTown) next() floodCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting {
		return floodCall{body: c.gone, kind: isGone}
	}
	if c.driven.open == nil {
		c.driven.open = c.driven.next(c.hammer.t)
	}
	c.waiting = true
	return floodCall{body: c.driven.open, kind: goesOn}
}

func (c *coldTown) refused(call floodCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.kind == goesOn {
		c.waiting = false
	}
}

func (c *coldTown) take(call floodCall, reply *nats.Msg) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.kind == goesOn {
		c.waiting = false
		if !c.hammer.take(c.driven, reply.Data) {
			return fmt.Errorf("%s: not what the model says", c.driven.id)
		}
		return nil
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	if err == nil && result.Status != handoff.Stale {
		err = fmt.Errorf("%s: a handoff of a state long gone is %s", c.driven.id, result.Status)
	}
	return err
}

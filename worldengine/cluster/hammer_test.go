package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// hammer drives some towns with one handoff after another each, and knows what their states must
// be: it is the model that the world is held against. What gets no answer, or 503, is sent again as
// it is.
type hammer struct {
	t     testing.TB
	towns []*driven
	// patience is when a client gives an answer up and asks again.
	patience time.Duration
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// driven is one town of a hammer. Its goroutine owns it but for what mu guards.
type driven struct {
	id    string
	home  int // the node that its client is connected to at first
	nc    *nats.Conn
	state town.State // after what was answered
	open  []byte     // the handoff in hand

	mu       sync.Mutex
	answered []answered
	times    []time.Time    // of the answers
	others   map[string]int // how often what else happened
}

type answered struct{ key, bytes string }

// requestTimeout is the patience of clients, unless a test sets another.
const requestTimeout = 2 * time.Second

// newHammer makes towns that share the given connections, one of each node's clients, and creates
// them. Their commands are applied as binding says.
func newHammer(t testing.TB, clients []*nats.Conn, towns int, binding string) *hammer {
	t.Helper()
	h := &hammer{t: t, patience: requestTimeout}
	for i := range towns {
		d := &driven{id: fmt.Sprintf("town %d", i), home: i % len(clients),
			nc:     clients[i%len(clients)],
			others: map[string]int{}}
		d.state = town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: d.id,
			SideQuests: []town.SideQuest{}, Projects: []town.Project{}})
		h.towns = append(h.towns, d)
		reply, err := d.nc.Request(wire.Subject(wire.DefaultWorld, "town.put"),
			fmt.Appendf(nil, `{"snapshot":%s,"apply":%q}`, d.state.Canonical, binding),
			20*time.Second)
		require.NoError(t, err)
		require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s", reply.Data)
	}
	return h
}

// start drives every town until end.
func (h *hammer) start() {
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.t.Cleanup(h.stop)
	for _, d := range h.towns {
		h.wg.Go(func() {
			for ctx.Err() == nil {
				if other := h.step(d); other != "" {
					d.note(other)
					select {
					case <-time.After(25 * time.Millisecond): // as a client does that was told 503
					case <-ctx.Done():
					}
				}
			}
		})
	}
}

func (h *hammer) end() {
	h.stop()
	h.wg.Wait()
}

func (d *driven) note(other string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.others[other]++
}

// step sends the town's handoff in hand, or its next one, and takes the answer. It returns what
// came instead of one.
func (h *hammer) step(d *driven) string {
	if d.open == nil {
		d.open = d.next(h.t)
	}
	reply, err := d.nc.Request(wire.Subject(wire.DefaultWorld, "handoff"), d.open, h.patience)
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout):
		return err.Error()
	case err != nil:
		h.t.Errorf("%s: %v", d.id, err)
		return err.Error()
	}
	switch code := reply.Header.Get("Nats-Service-Error-Code"); code {
	case "":
		return h.take(d, reply.Data)
	case "503":
		var body struct{ Error struct{ Code string } }
		_ = json.Unmarshal(reply.Data, &body)
		return code + " " + body.Error.Code
	default:
		h.t.Errorf("%s: %s", d.id, reply.Data)
		return code
	}
}

// take checks an answer against the model: whatever happened before, the state must move on by
// exactly this handoff, once.
func (h *hammer) take(d *driven, data []byte) string {
	result, err := handoff.ParseResult(data, schemas.Limits{})
	if err != nil {
		h.t.Errorf("%s: %v in %s", d.id, err, data)
		return "unreadable"
	}
	asked, err := handoff.Parse(d.open, schemas.Limits{})
	if err != nil {
		h.t.Errorf("%s: %v", d.id, err)
		return "unreadable"
	}
	after, reason := town.DefaultRules().Apply(d.state.Snapshot, &asked.Proposal)
	a := answered{key: result.IdempotencyKey}
	switch {
	case reason == "" && result.Status == handoff.Executed &&
		*result.WorldState.SnapshotHash == after.Hash:
		a.bytes = string(data)
	case reason == "" && result.Status == handoff.Duplicate:
		// executed, and the answer did not arrive
	default:
		h.t.Errorf("%s: at epoch %d answered %s", d.id, d.state.Epoch(), data)
		return "wrong"
	}
	d.state, d.open = after, nil
	d.mu.Lock()
	d.answered = append(d.answered, a)
	d.times = append(d.times, time.Now())
	d.mu.Unlock()
	return ""
}

func (d *driven) next(t testing.TB) []byte {
	made, err := handoff.New(handoff.Proposal{
		Type: handoff.TalkToTownsfolk, ActorID: "mayor-1", TownID: d.id,
		Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{"talkType": "casual"},
		SnapshotHash: d.state.Hash, DecisionEpoch: d.state.Epoch(),
	})
	require.NoError(t, err)
	encoded, err := made.MarshalWire()
	require.NoError(t, err)
	return encoded
}

// verify ends the load and holds the world against the model: the state of every town, every answer
// that was ever given, and everything that is derived. others is how many handoffs somebody else
// had accepted.
func (h *hammer) verify(nc *nats.Conn, others int) {
	h.t.Helper()
	h.end()
	for _, d := range h.towns {
		for deadline := time.Now().Add(30 * time.Second); d.open != nil &&
			time.Now().Before(deadline); {
			if h.step(d) == "" {
				break
			}
		}
		var at struct{ SnapshotHash string }
		ask(h.t, nc, "town.get", map[string]string{"townId": d.id}, &at)
		require.Equal(h.t, d.state.Hash, at.SnapshotHash, d.id)
		for _, a := range d.answered {
			var kept struct{ Result json.RawMessage }
			ask(h.t, nc, "result.get", map[string]string{"idempotencyKey": a.key}, &kept)
			if a.bytes != "" {
				require.Equal(h.t, a.bytes, string(kept.Result), "an answer was lost")
			}
		}
	}
	fsckClean(h.t, nc, h.answers()+others)
}

// fsckClean proves that the log is whole.
func fsckClean(t testing.TB, nc *nats.Conn, accepted int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	report, err := fsck.Run(ctx, nc, wire.DefaultWorld, fsck.Options{})
	require.NoError(t, err)
	require.Zero(t, report.FindingCount, "%+v", report.Findings)
	require.EqualValues(t, accepted, report.Counts.Accepted)
}

// answers returns how many handoffs were answered.
func (h *hammer) answers() int {
	n := 0
	for _, d := range h.towns {
		d.mu.Lock()
		n += len(d.times)
		d.mu.Unlock()
	}
	return n
}

// ask makes a request that must succeed, at a later try where a node or an engine is away. An
// answer that says what is not so, such as that a run is unknown, is no such trouble: trying again
// would hide that it came from what is behind.
func ask(t testing.TB, nc *nats.Conn, verb string, request, reply any) {
	t.Helper()
	body, err := json.Marshal(request)
	require.NoError(t, err)
	eventually(t, 20*time.Second, verb, func(ctx context.Context) error {
		got, err := nc.RequestWithContext(ctx, wire.Subject(wire.DefaultWorld, verb), body)
		if err != nil {
			return err
		}
		if code := got.Header.Get("Nats-Service-Error-Code"); code != "" {
			require.Equal(t, "503", code, "%s: %s", verb, got.Data)
			return fmt.Errorf("%s: %s", code, got.Data)
		}
		return json.Unmarshal(got.Data, reply)
	})
}

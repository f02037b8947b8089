package worldengine_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"worldengine/handoff"
	"worldengine/worldengine/town"
)

// The model that histories of a world are held against: what one client after another would see. It
// says in its own words what the engine has to do; of the engine's parts it uses only the pure
// rules of package town, which have an oracle of their own.

// linearCall is what a client asks: one of a handoff, a town.put, a town.get and a result.get.
type linearCall struct {
	town     string
	handoff  *handoff.Handoff
	put      *town.State
	expected string // of a put: the hash of the state that it replaces
	key      string // of a result.get
	anyTown  bool   // of a result.get: without the town
}

// linearAnswer is what a client is told. The zero answer is none: it is not known whether the
// request was carried out, or will be.
type linearAnswer struct {
	code  string // a reasonCode with its status, or an error code, or OK
	state string // the hash of the town's state that it was judged on, or that came of it
	// of an accepted handoff; for a duplicate and a result.get, of the one that was accepted
	resultID string
}

// linearPlace is a key in a town: a key belongs to its town.
type linearPlace struct{ town, key string }

// linearReceipt is an accepted handoff, the nth of all. Its resultID is "" until somebody is told.
type linearReceipt struct {
	handoffID, resultID string
	nth                 int
}

// linearWorld is the state of the model. It is never changed in place.
type linearWorld struct {
	towns    map[string]town.State
	receipts map[linearPlace]linearReceipt
}

func (w linearWorld) withTown(s town.State) linearWorld {
	w.towns = maps.Clone(w.towns)
	w.towns[s.Snapshot.TownID] = s
	return w
}

func (w linearWorld) withReceipt(at linearPlace, r linearReceipt) linearWorld {
	w.receipts = maps.Clone(w.receipts)
	w.receipts[at] = r
	return w
}

func (w linearWorld) equal(other linearWorld) bool {
	return maps.Equal(w.receipts, other.receipts) &&
		maps.EqualFunc(w.towns, other.towns, func(a, b town.State) bool { return a.Hash == b.Hash })
}

// step carries out one call: the answer that it must get, and the world after it.
func (w linearWorld) step(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	switch at := w.towns[c.town]; {
	case c.handoff != nil:
		return w.judge(c.handoff, told)
	case c.put != nil:
		code := linearPut(at, c.put, c.expected)
		if code != "OK" {
			return linearAnswer{code: code}, w
		}
		return linearAnswer{code: code, state: c.put.Hash}, w.withTown(*c.put)
	case c.key != "":
		at, known := w.find(c)
		if !known {
			return linearAnswer{code: "UNKNOWN_RESULT"}, w
		}
		r, w := w.bound(at, w.receipts[at], told.resultID)
		return linearAnswer{code: "OK", resultID: r.resultID}, w
	case !at.Exists():
		return linearAnswer{code: "UNKNOWN_TOWN"}, w
	default:
		return linearAnswer{code: "OK", state: at.Hash}, w
	}
}

// find returns which receipt a result.get asks for: of its town, or of the last town that accepted
// the key.
func (w linearWorld) find(c linearCall) (found linearPlace, known bool) {
	for at, r := range w.receipts {
		if at.key == c.key && (c.anyTown || at.town == c.town) &&
			(!known || r.nth > w.receipts[found].nth) {
			found, known = at, true
		}
	}
	return found, known
}

// bound keeps the first resultID that anybody is told of a receipt: from then on it is that one.
func (w linearWorld) bound(
	at linearPlace, r linearReceipt, told string,
) (linearReceipt, linearWorld) {
	if r.resultID != "" || told == "" {
		return r, w
	}
	r.resultID = told
	return r, w.withReceipt(at, r)
}

func linearPut(at town.State, put *town.State, expected string) string {
	switch {
	case expected == "" && at.Exists():
		return "TOWN_EXISTS"
	case expected == "":
		return "OK"
	case !at.Exists():
		return "UNKNOWN_TOWN"
	case at.Hash != expected:
		return "SNAPSHOT_CONFLICT"
	case put.Epoch() < at.Epoch():
		return "EPOCH_REGRESSION"
	}
	return "OK"
}

// judge is the outcome table of a handoff. Of what the client was told it takes the resultID, since
// an id is not the model's to say.
func (w linearWorld) judge(h *handoff.Handoff, told linearAnswer) (linearAnswer, linearWorld) {
	place := linearPlace{h.Proposal.TownID, h.IdempotencyKey}
	if r, used := w.receipts[place]; used {
		r, w = w.bound(place, r, told.resultID)
		code := "duplicate DUPLICATE_HANDOFF"
		if r.handoffID != h.HandoffID {
			code = "duplicate IDEMPOTENCY_KEY_REUSED"
		}
		return linearAnswer{code: code, resultID: r.resultID}, w
	}
	at := w.towns[h.Proposal.TownID]
	switch {
	case !at.Exists():
		return linearAnswer{code: "rejected UNKNOWN_TOWN"}, w
	case h.Requirements.ExpectedDecisionEpoch != at.Epoch():
		return linearAnswer{code: "stale STALE_DECISION_EPOCH", state: at.Hash}, w
	case h.Requirements.ExpectedSnapshotHash != at.Hash:
		return linearAnswer{code: "stale STALE_SNAPSHOT_HASH", state: at.Hash}, w
	case len(town.Evaluate(h.Requirements.Preconditions, at.Snapshot)) > 0:
		return linearAnswer{code: "rejected PRECONDITION_FAILED", state: at.Hash}, w
	}
	w = w.withReceipt(place, linearReceipt{h.HandoffID, told.resultID, len(w.receipts)})
	after, reason := town.DefaultRules().Apply(at.Snapshot, &h.Proposal)
	if reason != "" {
		return linearAnswer{code: "failed " + string(reason), state: at.Hash,
			resultID: told.resultID}, w
	}
	return linearAnswer{code: "executed EXECUTED", state: after.Hash, resultID: told.resultID},
		w.withTown(after)
}

// linearModel is the model for porcupine. Towns that no result.get sees together have nothing to do
// with each other, so each group of towns that one does is checked by itself.
func linearModel() porcupine.Model {
	return porcupine.Model{
		Partition: linearGroups,
		Init: func() any {
			return linearWorld{towns: map[string]town.State{},
				receipts: map[linearPlace]linearReceipt{}}
		},
		Step: func(state, input, output any) (bool, any) {
			told := output.(linearAnswer)
			must, next := state.(linearWorld).step(input.(linearCall), told)
			return told == (linearAnswer{}) || told == must, next
		},
		Equal:             func(a, b any) bool { return a.(linearWorld).equal(b.(linearWorld)) },
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%s: %v", in, out) },
	}
}

// linearGroups parts a history by the towns that used a key for which a result.get asked without a
// town.
func linearGroups(history []porcupine.Operation) [][]porcupine.Operation {
	// by town or key, another of its group; itself for the group's name
	group := map[string]string{}
	var find func(string) string
	find = func(name string) string {
		if next, known := group[name]; known && next != name {
			group[name] = find(next)
			return group[name]
		}
		return name
	}
	shared := map[string]bool{}
	for _, o := range history {
		if c := o.Input.(linearCall); c.anyTown {
			shared[c.key] = true
		}
	}
	for _, o := range history {
		if c := o.Input.(linearCall); shared[c.keyOf()] {
			group[find("key "+c.keyOf())] = find("town " + c.town)
		}
	}
	parts := map[string][]porcupine.Operation{}
	for _, o := range history {
		name := find("town " + o.Input.(linearCall).town)
		parts[name] = append(parts[name], o)
	}
	return slices.Collect(maps.Values(parts))
}

func (c linearCall) keyOf() string {
	if c.handoff != nil {
		return c.handoff.IdempotencyKey
	}
	return c.key
}

func (c linearCall) String() string {
	switch {
	case c.handoff != nil:
		p := &c.handoff.Proposal
		return fmt.Sprintf("%s %s at %d", c.handoff.HandoffID[len(c.handoff.HandoffID)-6:],
			p.Command(), p.DecisionEpoch)
	case c.put != nil:
		return fmt.Sprintf("put %s day %d over %.6s", c.town, c.put.Epoch(), c.expected)
	case c.key != "":
		return "result of " + c.key[len(c.key)-6:]
	}
	return "get " + c.town
}

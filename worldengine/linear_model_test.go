package worldengine_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"worldengine/handoff"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/town"
)

// The model that histories of a world are held against: what one client after another would see. It
// says in its own words what the engine has to do; of the engine's parts it uses only the pure
// rules of package town, which have an oracle of their own.

// linearApproval is the type of proposals that a person has to approve.
const linearApproval = handoff.PlanSalvage

// linearCall is what a client asks: one of a handoff, a town.put, a town.get, a result.get and an
// approval.decide.
type linearCall struct {
	town     string
	decide   *linearDecision
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

// linearDecision is what a person says about a handoff.
type linearDecision struct {
	handoffID, hash, person string // hash is that of the handoff that the person was shown
	approve                 bool
}

// linearHash returns the hash of a handoff.
func linearHash(h *handoff.Handoff) string {
	body, err := h.MarshalWire()
	if err != nil {
		panic(err)
	}
	return approval.Hash(body)
}

// linearAsked is a handoff that a person is, or was, asked about. by is who has decided, "" while
// nobody has; done is set once there is nothing to decide about it any more, and used where it was
// accepted for execution.
type linearAsked struct {
	town, hash           string
	by                   string
	approved, done, used bool
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
	asked    map[string]linearAsked // by handoffId and hash
}

// withTown also ends what waits, or is approved, of another state of the town.
func (w linearWorld) withTown(s town.State) linearWorld {
	w.towns = maps.Clone(w.towns)
	w.towns[s.Snapshot.TownID] = s
	for id, a := range w.asked {
		if a.town == s.Snapshot.TownID && a.hash != s.Hash && !a.done {
			a.done = true
			w = w.withAsked(id, a)
		}
	}
	return w
}

func (w linearWorld) withAsked(handoffID string, a linearAsked) linearWorld {
	w.asked = maps.Clone(w.asked)
	w.asked[handoffID] = a
	return w
}

func (w linearWorld) withReceipt(at linearPlace, r linearReceipt) linearWorld {
	w.receipts = maps.Clone(w.receipts)
	w.receipts[at] = r
	return w
}

func (w linearWorld) equal(other linearWorld) bool {
	return maps.Equal(w.receipts, other.receipts) && maps.Equal(w.asked, other.asked) &&
		maps.EqualFunc(w.towns, other.towns, func(a, b town.State) bool { return a.Hash == b.Hash })
}

// step carries out one call: the answer that it must get, and the world after it.
func (w linearWorld) step(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	switch at := w.towns[c.town]; {
	case c.decide != nil:
		return w.decide(c, told)
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
	reason, w := w.approve(h, at)
	if reason != "" {
		return linearAnswer{code: reason, state: at.Hash}, w
	}
	w = w.withReceipt(place, linearReceipt{h.HandoffID, told.resultID, len(w.receipts)})
	after, failed := town.DefaultRules().Apply(at.Snapshot, &h.Proposal)
	if failed != "" {
		return linearAnswer{code: "failed " + string(failed), state: at.Hash,
			resultID: told.resultID}, w
	}
	return linearAnswer{code: "executed EXECUTED", state: after.Hash, resultID: told.resultID},
		w.withTown(after)
}

// approve is what a handoff that passed all other checks needs besides: a reason where it may not
// be executed, and the world in which it waits, or has used its approval.
func (w linearWorld) approve(h *handoff.Handoff, at town.State) (string, linearWorld) {
	if h.Proposal.Type != linearApproval {
		return "", w
	}
	key := h.HandoffID + linearHash(h)
	a, asked := w.asked[key]
	switch {
	case asked && a.hash == at.Hash && a.by != "" && !a.approved: // denied, for this state
		return "rejected APPROVAL_DENIED", w
	case !asked || a.done:
		return "rejected APPROVAL_REQUIRED", w.withAsked(key,
			linearAsked{town: h.Proposal.TownID, hash: at.Hash})
	case a.by == "":
		return "rejected APPROVAL_REQUIRED", w
	}
	a.done, a.used = true, true
	return "", w.withAsked(key, a)
}

// decide is what a person is told who decides. The first decision counts. A server says of what
// does not wait any more why, as long as it knows.
func (w linearWorld) decide(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	key := c.decide.handoffID + c.decide.hash
	a, asked := w.asked[key]
	again := a.by == c.decide.person && a.approved == c.decide.approve
	switch {
	case asked && !a.done && a.by == "":
		a.by, a.approved, a.done = c.decide.person, c.decide.approve, !c.decide.approve
		return linearAnswer{code: "OK"}, w.withAsked(key, a)
	case asked && !a.done && again:
		return linearAnswer{code: "OK"}, w
	case asked && !a.done:
		return linearAnswer{code: "ALREADY_DECIDED"}, w
	case told.code == "OK" && again && !a.approved && a.hash == w.towns[c.town].Hash:
		return linearAnswer{code: "OK"}, w // the denial, once more
	case told.code == "OK" && again && a.used:
		return linearAnswer{code: "OK"}, w // the approval, after the execution
	case slices.Contains(linearRefusals, told.code):
		return linearAnswer{code: told.code}, w
	}
	return linearAnswer{code: linearRefusals[0]}, w
}

var linearRefusals = []string{"UNKNOWN_APPROVAL", "ALREADY_DECIDED", "APPROVAL_STALE",
	"APPROVAL_DIFFERS"}

// linearModel is the model for porcupine. Towns that no result.get sees together have nothing to do
// with each other, so each group of towns that one does is checked by itself.
func linearModel() porcupine.Model {
	return porcupine.Model{
		Partition: linearGroups,
		Init: func() any {
			return linearWorld{towns: map[string]town.State{},
				receipts: map[linearPlace]linearReceipt{}, asked: map[string]linearAsked{}}
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
	case c.decide != nil:
		d := c.decide
		return fmt.Sprintf("%s says %v to %s", d.person, d.approve,
			d.handoffID[len(d.handoffID)-6:])
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

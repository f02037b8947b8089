package engine_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
)

// The model of a world's histories: the observations of clients that act one after another. It
// restates the engine's duties; of the engine it uses only the pure rules of package town, which
// have their own oracle.

// linearApproval is the type of proposals that a person has to approve, except in linearGame, a
// game's town: a plugin, which may be absent, applies its commands.
const (
	linearApproval = handoff.PlanSalvage
	linearGame     = "town 3"
)

// linearCall is a client's request: one of a handoff, a town.put, a town.get, a result.get, an
// approval.decide and a run.cancel. An approval.decide with submit is two simultaneous calls: the
// decision, and the handoff that it submits. A game's handoff without an answer is two calls as
// well, at most one of which has an effect: one of them fails.
type linearCall struct {
	town      string
	decide    *linearDecision
	handoff   *handoff.Handoff
	submitted bool // of a handoff: by an approval.decide
	fails     bool // of a handoff: its command was not applied by the game
	rivals    bool // two writers serve, so each takes the runs that wait in the other one for left ones
	put       *town.State
	expected  string // of a put: the hash of the state that it replaces
	key       string // of a result.get
	anyTown   bool   // of a result.get: without the town
	cancel    string // the run to cancel
	force     bool
	answered  int // of a call without an answer: how many of its towns have one
}

// linearAnswer is a client's answer. The zero answer is none: the request may or may not have an
// effect, now or later.
type linearAnswer struct {
	code  string // a reasonCode with its status, or an error code, or OK
	state string // the hash of the town's state that it was judged on, or that came of it
	// of an accepted handoff; for a duplicate and a result.get, of the first one
	resultID string
	run      string // of a handoff for linearGame: the run that judged it
}

// linearDecision is a person's decision about a handoff.
type linearDecision struct {
	handoffID, hash, person string // hash is that of the handoff that the person was shown
	approve                 bool
	submit                  *handoff.Handoff // the handoff; nil where it is not submitted
}

// linearHash returns the hash of a handoff.
func linearHash(h *handoff.Handoff) string {
	body, err := h.MarshalWire()
	if err != nil {
		panic(err)
	}
	return approval.Hash(body)
}

// linearAsked is a handoff that a person is, or was, asked about. by has decided, "" while nobody
// has; done is set once nothing is left to decide, used if it was accepted for execution.
type linearAsked struct {
	town, hash           string
	by                   string
	approved, done, used bool
}

// linearPlace is a key in a town: a key belongs to its town.
type linearPlace struct{ town, key string }

// linearReceipt is an accepted handoff, the nth of all, and its answer. The answer's resultID is ""
// until a client gets it.
type linearReceipt struct {
	handoffID string
	linearAnswer
	nth int
}

// linearEnd is how a run for linearGame ended.
type linearEnd string

const (
	linearCancelled linearEnd = "cancelled"
	linearAnswered  linearEnd = "answered"
)

// linearWorld is the state of the model. It is never changed in place.
type linearWorld struct {
	towns     map[string]town.State
	receipts  map[linearPlace]linearReceipt
	approvals map[string]linearAsked // by handoffId and hash
	runs      map[string]linearEnd
	answered  int // how many calls that have an answer were carried out
}

// withTown also ends the proposals that wait, or are approved, for another state of the town.
func (w linearWorld) withTown(s town.State) linearWorld {
	w.towns = maps.Clone(w.towns)
	w.towns[s.Snapshot.TownID] = s
	for id, a := range w.approvals {
		if a.town == s.Snapshot.TownID && a.hash != s.Hash && !a.done {
			a.done = true
			w = w.withAsked(id, a)
		}
	}
	return w
}

func (w linearWorld) withAsked(handoffID string, a linearAsked) linearWorld {
	w.approvals = maps.Clone(w.approvals)
	w.approvals[handoffID] = a
	return w
}

func (w linearWorld) withRun(id string, end linearEnd) linearWorld {
	w.runs = maps.Clone(w.runs)
	w.runs[id] = end
	return w
}

func (w linearWorld) withReceipt(at linearPlace, r linearReceipt) linearWorld {
	w.receipts = maps.Clone(w.receipts)
	w.receipts[at] = r
	return w
}

func (w linearWorld) equal(other linearWorld) bool {
	return maps.Equal(w.receipts, other.receipts) && maps.Equal(w.approvals, other.approvals) &&
		maps.Equal(w.runs, other.runs) &&
		maps.EqualFunc(w.towns, other.towns, func(a, b town.State) bool { return a.Hash == b.Hash })
}

// step makes one call: the answer that it must get, and the world after it.
func (w linearWorld) step(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	switch at := w.towns[c.town]; {
	case c.decide != nil:
		return w.decide(c, told)
	case c.cancel != "":
		return w.cancel(c, told)
	case c.handoff != nil:
		return w.run(c, told)
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

// find returns the receipt for a result.get: of its town, or of the last town that accepted the
// key.
func (w linearWorld) find(c linearCall) (found linearPlace, known bool) {
	for at, r := range w.receipts {
		if at.key == c.key && (c.anyTown || at.town == c.town) &&
			(!known || r.nth > w.receipts[found].nth) {
			found, known = at, true
		}
	}
	return found, known
}

// bound keeps the first resultID that a client gets for a receipt: all later ones must equal it.
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

// run judges a handoff in a run, which ends once: by a cancellation, after which the world is
// unchanged and the key is free, or by another answer.
func (w linearWorld) run(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	if told.run == "" {
		return w.judge(c, told)
	}
	end := w.runs[told.run]
	if end == linearCancelled || end == "" && c.rivals && told.code == "RUN_CANCELLED" {
		return linearAnswer{code: "RUN_CANCELLED", run: told.run}, w.withRun(told.run, linearCancelled)
	}
	must, after := w.judge(c, told)
	must.run = told.run
	return must, after.withRun(told.run, linearAnswered)
}

// cancel ends a run without an end. Without force a server refuses if a game may have the command;
// it always refuses a run that, to its knowledge, does not wait.
func (w linearWorld) cancel(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	end := w.runs[c.cancel]
	switch {
	case end != linearAnswered && (told.code == "OK" || told.code == ""):
		return linearAnswer{code: "OK"}, w.withRun(c.cancel, linearCancelled)
	case end == "" && told.code == "RUN_IN_HAND" && !c.force:
		return linearAnswer{code: told.code}, w
	}
	return linearAnswer{code: "RUN_NOT_WAITING"}, w
}

// judge is the outcome table of a handoff. It copies from the client's answer the resultID, since
// the model makes no ids, and whether a game has not applied the command.
func (w linearWorld) judge(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	h := c.handoff
	place := linearPlace{h.Proposal.TownID, h.IdempotencyKey}
	if r, used := w.receipts[place]; used {
		r, w = w.bound(place, r, told.resultID)
		if c.submitted && told.code == r.code {
			return r.linearAnswer, w // what came of it before
		}
		code := "duplicate DUPLICATE_HANDOFF"
		if r.handoffID != h.HandoffID {
			code = "duplicate IDEMPOTENCY_KEY_REUSED"
		}
		return linearAnswer{code: code, resultID: r.resultID}, w
	}
	at := w.towns[h.Proposal.TownID]
	if checked := machinetest.Judge(h, at, nil); checked.Status != "" {
		return linearAnswer{code: fmt.Sprint(checked.Status, " ", checked.ReasonCode), state: at.Hash}, w
	}
	after, failed := town.DefaultRules().Apply(at.Snapshot, &h.Proposal)
	if failed == "" { // nobody is asked to approve a command that the rules refuse
		reason := ""
		if reason, w = w.approve(h, at); reason != "" {
			return linearAnswer{code: reason, state: at.Hash}, w
		}
	}
	must := linearAnswer{code: "executed EXECUTED", state: after.Hash, resultID: told.resultID}
	switch game := at.Snapshot.TownID == linearGame; {
	case failed != "":
		after, must.code = at, "failed "+string(failed)
	case game && (c.fails || slices.Contains(linearGameFailures, told.code)):
		after, must.code = at, told.code
	}
	must.state = after.Hash
	return must, w.withReceipt(place, linearReceipt{h.HandoffID, must, len(w.receipts)}).
		withTown(after)
}

var linearGameFailures = []string{"failed PLUGIN_UNAVAILABLE", "failed PLUGIN_TIMEOUT"}

// approve checks a handoff that passed all other checks: it returns a reason if it may not be
// executed, and the world in which it waits, or has used its approval.
func (w linearWorld) approve(h *handoff.Handoff, at town.State) (string, linearWorld) {
	if h.Proposal.Type != linearApproval || h.Proposal.TownID == linearGame {
		return "", w
	}
	key := h.HandoffID + linearHash(h)
	a, asked := w.approvals[key]
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

// decide answers a person's decision. The first decision counts. A server gives the reason why a
// proposal no longer waits, as long as it knows.
func (w linearWorld) decide(c linearCall, told linearAnswer) (linearAnswer, linearWorld) {
	key := c.decide.handoffID + c.decide.hash
	a, asked := w.approvals[key]
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

// linearModel is the model for porcupine. Towns that no result.get connects are independent, so
// each connected group is checked by itself.
func linearModel() porcupine.Model {
	return porcupine.Model{
		Partition: linearGroups,
		Init: func() any {
			return linearWorld{towns: map[string]town.State{},
				receipts: map[linearPlace]linearReceipt{}, approvals: map[string]linearAsked{},
				runs: map[string]linearEnd{}}
		},
		Step: func(state, input, output any) (bool, any) {
			w, c, told := state.(linearWorld), input.(linearCall), output.(linearAnswer)
			must, next := w.step(c, told)
			if told == (linearAnswer{}) {
				// A call without effect may as well be the last, which spares the check most of the
				// orders.
				return w.answered == c.answered || !next.equal(w), next
			}
			next.answered++
			return told == must, next
		},
		Equal: func(a, b any) bool {
			return a.(linearWorld).answered == b.(linearWorld).answered &&
				a.(linearWorld).equal(b.(linearWorld))
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%s: %v", in, out) },
	}
}

// linearGroups splits a history by towns that share a key for which a result.get asked without a
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
	for _, part := range parts {
		unanswered := func(o porcupine.Operation) bool { return o.Output == linearAnswer{} }
		answered := len(slices.DeleteFunc(slices.Clone(part), unanswered))
		for i := range part {
			c := part[i].Input.(linearCall)
			if unanswered(part[i]) {
				c.answered = answered
			}
			part[i].Input = c
		}
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
	case c.cancel != "":
		return fmt.Sprintf("cancel %s, force %v", c.cancel[len(c.cancel)-6:], c.force)
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

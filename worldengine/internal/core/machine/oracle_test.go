package machine_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/town"
)

// oracle is a town by the contracts, plain and slow. It shares with the machine the inputs, the
// rules, and the states of towns, but no decision.
type oracle struct {
	id        string
	settings  *machine.Settings
	now       time.Time
	state     town.State
	binding   apply.Binding
	policy    *approval.Policy
	paused    map[string]string // the signals that paused the town and the world, by its id and ""
	command   *command
	accepted  map[string]*handoff.Result // by key
	questions []*question
	runs      map[string]*course
}

// command is the command that a game applies.
type command struct {
	h                   *handoff.Handoff
	run                 string
	retry               bool
	reached, unreached  bool // a request may have arrived; the writer stopped, and none has
	binding             apply.Binding
	attempt             int64
	expected            town.State
	notBefore, deadline time.Time
}

// question is a proposal that a person is, or was, asked about.
type question struct {
	h       *handoff.Handoff
	hash    string
	size    int
	expires time.Time
	verdict string // waiting, approved, denied, used or stale
	by      string
}

// course is a run of a handoff, and which events of attempts stand on its own subject.
type course struct {
	status           string
	closed, canceled bool
	has              map[string]bool
}

// prediction is an input's output, in outputText's words, and the change of each record once it is stored.
type prediction struct {
	text  string
	thens []func()
}

func fails(err error) prediction { return prediction{text: "error " + err.Error()} }

// predict returns the prediction for a record with parts.
func predict(then func(), parts ...string) prediction {
	return prediction{join(parts...), []func(){then}}
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "; ")
}

// followed returns the prediction for a record on the subject of a run, if there is one, and for those that
// follow it. next predicts these with the record stored.
func (o *oracle) followed(first prediction, runID string, next func() prediction) prediction {
	if first.thens == nil {
		return next()
	}
	r := o.run(runID)
	before := *r
	before.has = maps.Clone(r.has)
	first.thens[0]()
	p := next()
	if *r = before; p.thens == nil {
		return p
	}
	return prediction{first.text + " / " + p.text, append(first.thens, p.thens...)}
}

// outputText renders an output.
func outputText(out *machine.Output, err error) string {
	if err != nil {
		return "error " + err.Error()
	}
	text := ""
	if out.RunRecordBefore != nil {
		text = recordText(out.RunRecordBefore, "") + " / "
	}
	var parts [4]string
	if out.Record != nil {
		parts[0] = recordText(out.Record, mark("free", out.Unguarded))
	}
	if out.Answer != nil {
		parts[1] = judged(out.Answer.Result)
	}
	if out.SignalRefusal != nil {
		parts[2] = "refused " + string(out.SignalRefusal.Code)
	}
	if d := out.DecidedApproval; d != nil {
		parts[3] = decided(d.Decision.Approved, d.Decision.ActorID)
	}
	if text += join(parts[:]...); out.RunRecordAfter != nil {
		text += " / " + recordText(out.RunRecordAfter, "")
	}
	return text
}

func recordText(rec *machine.Record, marks string) string {
	names := ""
	if rec.Run != nil {
		names = events(rec.Run)
	}
	return join(string(rec.Kind)+" on "+[]string{"town", "refused", "signals", "run", "world"}[rec.Subject()],
		mark("closing", rec.Closing)+marks, names)
}

func mark(name string, on bool) string { return pick(on, " "+name, "") }

func pick[T any](on bool, yes, no T) T {
	if on {
		return yes
	}
	return no
}

func decided(approved bool, by string) string {
	return fmt.Sprintf("decided %t by %s", approved, by)
}

// judged renders a result, without the words about an approval.
func judged(r *handoff.Result) string {
	e := r.Evaluation
	e.Preconditions.Failures = slices.Clone(e.Preconditions.Failures)
	for i := range e.Preconditions.Failures {
		if f := &e.Preconditions.Failures[i]; f.Kind == handoff.Approval {
			f.Detail = ""
		}
	}
	data, _ := json.Marshal(handoff.Outcome{Status: r.Status, ReasonCode: r.ReasonCode,
		Evaluation: e, WorldState: r.WorldState})
	return string(data)
}

func (o *oracle) predict(townID string, event machine.Event) prediction {
	switch e := event.(type) {
	case *machine.Judge:
		return o.handoff(e)
	case *machine.Put:
		return o.put(e.State, e.Expected, e.Attributes)
	case *machine.Patch:
		if err := o.state.CheckHash(e.Expected); err != nil {
			return fails(err)
		}
		state, err := o.state.Patch(e.Patch)
		if err != nil {
			return fails(schemas.Nest(schemas.TownPatchRequest, err, "patch"))
		}
		return o.put(state, e.Expected, e.Attributes)
	case *machine.Signal:
		if e.Kind == machine.SignalApprove || e.Kind == machine.SignalDeny {
			return o.decide(e)
		}
		return o.pause(townID, e)
	case *machine.RecordSignal:
		return predict(func() {}, "signal on signals", pick(e.Code == "", signalled, rejected))
	case *machine.Wait:
		return o.wait(e)
	case *machine.CancelWaiting:
		return o.abandon(e.Run.RunID)
	case *machine.Cancel:
		return o.cancel(e)
	case *machine.PauseRun:
		if o.command == nil {
			return prediction{}
		}
		r, pause := o.run(o.command.run), e.By != nil
		return o.runRecord(o.command.run, r.closed || pause == (r.status == "PAUSED"),
			pick(pause, "PAUSED", "RUNNING"), false, pick(pause, "RunPaused", "RunResumed"))
	}
	if o.command == nil {
		return fails(errors.New("machine: no command is being applied to the town"))
	}
	switch e := event.(type) {
	case *machine.RecordAttempt:
		return o.extend(e.Started, false, false)
	case *machine.RecordReach:
		return predict(func() {
			o.command.reached = o.command.reached || e.MayHaveReached
			o.command.unreached = e.StoppedUnreached && !o.command.reached
		}, "pending on town")
	}
	return o.outcome(event.(*machine.EndAttempt).AttemptResult)
}

// abandon predicts that a run that is not going to be judged is cancelled.
func (o *oracle) abandon(runID string) prediction {
	r := o.run(runID)
	if r.canceled {
		return fails(machine.ErrRunCancelled)
	}
	started := pick(r.status != "PAUSED", "RunStarted, ", "")
	p := o.runRecord(runID, false, "CANCELLED", true, started+"RunCancelled")
	return predict(func() { p.thens[0](); r.canceled = true }, p.text)
}

func (o *oracle) run(runID string) *course {
	if o.runs[runID] == nil {
		o.runs[runID] = &course{has: map[string]bool{}}
	}
	return o.runs[runID]
}

// runRecord predicts a record on the run's own subject, after which the run has a status.
func (o *oracle) runRecord(
	runID string, none bool, status string, closing bool, names string,
) prediction {
	r := o.run(runID)
	if none {
		return prediction{}
	}
	return predict(func() {
		r.closed, r.status = closing, cmp.Or(status, r.status)
	}, "run on run", mark("closing", closing), names)
}

// wait records that a run waits, once for each reason; it is closed if it is judged next, and else open.
func (o *oracle) wait(e *machine.Wait) prediction {
	r := o.run(e.Run.RunID)
	switch {
	case r.canceled:
		return fails(machine.ErrRunCancelled)
	case e.By == nil && r.status == "":
		return o.runRecord(e.Run.RunID, false, "PENDING", e.Closing, "RunQueued")
	case e.By != nil && r.status != "PAUSED":
		queued := r.status == "" && e.Start.Queued
		return o.runRecord(e.Run.RunID, false, "PAUSED", e.Closing,
			pick(queued, "RunQueued, ", "")+"RunStarted, RunPaused")
	}
	return o.runRecord(e.Run.RunID, r.closed == e.Closing, "", e.Closing, "")
}

// become gives the town another state: proposals and approvals of the one before are stale.
func (o *oracle) become(state town.State) {
	o.state = state
	for _, q := range o.questions {
		if q.h.SnapshotHash != state.Hash && (q.verdict == "waiting" || q.verdict == "approved") {
			q.verdict = "stale"
		}
	}
}

func (o *oracle) put(state town.State, expected string, a machine.Attributes) prediction {
	if o.command != nil {
		return fails(machine.ErrBusy)
	}
	if err := state.CheckReplace(o.state, expected); err != nil {
		return fails(err)
	}
	return predict(func() {
		o.binding, o.policy = cmp.Or(a.Binding, o.binding), cmp.Or(a.Approval, o.policy)
		o.become(state)
	}, "put on town")
}

const (
	signalled = "RunStarted, SignalAccepted, RunCompleted"
	rejected  = "RunStarted, SignalRejected, RunFailed"
)

func refused(code string) prediction {
	return predict(func() {}, "signal on signals", rejected, "refused "+code)
}

func (o *oracle) pause(townID string, e *machine.Signal) prediction {
	pause := e.Kind == machine.SignalPause
	switch {
	case townID != "" && !o.state.Exists():
		return refused("UNKNOWN_TOWN")
	case pause && o.paused[townID] != "":
		return refused("ALREADY_PAUSED")
	case !pause && o.paused[townID] == "":
		return refused("NOT_PAUSED")
	}
	return predict(func() { o.paused[townID] = pick(pause, e.Run.RunID, "") },
		"control on "+pick(townID == "", "world", "town"), signalled)
}

// startEvents returns the events of a run up to its checks.
func (o *oracle) startEvents(e *machine.Judge, v *handoff.Evaluation, approved bool) string {
	var names []string
	add := func(name string, on bool) {
		if on {
			names = append(names, name)
		}
	}
	r := o.run(e.Run.RunID)
	add("RunResumed", r.status == "PAUSED")
	add("RunQueued", r.status == "" && e.Start.Queued)
	add("RunApproved", approved && r.status != "PAUSED")
	add("RunStarted", r.status != "PAUSED")
	add("SignalAccepted", e.RetryOf != nil)
	for name, evaluated := range []bool{v.DuplicateCheck.Evaluated, v.StaleCheck.Evaluated,
		v.Preconditions.Evaluated} {
		check := []string{"duplicate-check", "stale-check", "precondition-check"}[name]
		add(check, evaluated)
		add("["+check+"]", !evaluated)
	}
	return strings.Join(names, ", ") + ", "
}

// handoff judges a handoff. The run of one that waited is closed first; it is opened again while a game
// applies the command.
func (o *oracle) handoff(e *machine.Judge) prediction {
	r, first := o.run(e.Run.RunID), prediction{}
	switch {
	case !e.DryRun && (o.command != nil || o.paused[e.Handoff.Proposal.TownID] != ""):
		return fails(machine.ErrBusy)
	case !e.Recorded:
		return o.judge(e)
	case r.canceled:
		return fails(machine.ErrRunCancelled)
	case !r.closed:
		first = o.wait(&machine.Wait{Run: e.Run, Start: e.Start, Closing: true})
	}
	return o.followed(first, e.Run.RunID, func() prediction {
		p := o.judge(e)
		if strings.HasPrefix(p.text, "pending") {
			reopened := o.runRecord(e.Run.RunID, false, "", false, "")
			p = prediction{p.text + " / " + reopened.text, append(p.thens, reopened.thens...)}
		}
		return p
	})
}

// judge predicts the outcome of a handoff.
func (o *oracle) judge(e *machine.Judge) prediction {
	h, r, approved := e.Handoff, o.run(e.Run.RunID), false
	var prior *dedupe.Receipt
	if first := o.accepted[h.IdempotencyKey]; first != nil && e.RetryOf == nil {
		prior = &dedupe.Receipt{HandoffID: first.HandoffID, ResultID: first.ResultID}
	}
	checked := machinetest.Judge(h, o.state, prior)
	v := checked.Evaluation
	refuse := func(status handoff.Status, reason handoff.ReasonCode) prediction {
		kind, ask, free := "refused on refused", reason == "ASK", ""
		if ask {
			kind, reason = "asked on town", "APPROVAL_REQUIRED"
		}
		if status == "duplicate" {
			first := o.accepted[h.IdempotencyKey]
			free = mark("free", first.ReasonCode != "PLUGIN_UNAVAILABLE")
		}
		result := handoff.NewResult(h, handoff.Outcome{Status: status, ReasonCode: reason,
			Evaluation: v})
		return predict(func() {
			if r.status = "COMPLETED"; ask {
				o.ask(h)
			}
		}, kind, free, o.startEvents(e, &v, false)+"[apply], RunCompleted", judged(result))
	}
	if checked.Status != "" {
		return refuse(checked.Status, checked.ReasonCode)
	}
	after, failed := o.settings.Rules.Apply(o.state.Snapshot, &h.Proposal)
	if failed == "" && slices.Contains(cmp.Or(o.policy, &o.settings.ApprovalPolicy).Types, h.Proposal.Type) {
		if reason := o.unapproved(h); reason != "" {
			v.Preconditions = handoff.PreconditionReport{Evaluated: true,
				Failures: []handoff.Failure{{Kind: "approval"}}}
			return refuse("rejected", reason)
		}
		approved = true
	}
	begun := o.startEvents(e, &v, approved) + "StepStarted 1"
	switch binding := cmp.Or(o.binding, o.settings.Binding); {
	case failed != "":
		return o.conclude(h, e.Run.RunID, &v, failed, o.state, begun+", StepFailed 1, RunFailed")
	case binding == "local" || e.DryRun:
		return o.conclude(h, e.Run.RunID, &v, "", after, begun+", StepCompleted 1, RunCompleted")
	default:
		return predict(func() {
			o.use(h)
			r.status = "RUNNING"
			o.command = &command{h: h, run: e.Run.RunID, retry: e.RetryOf != nil, binding: binding,
				attempt: 1, expected: after, notBefore: o.now,
				deadline: o.now.Add(o.settings.Retry.Deadline)}
		}, "pending on town", begun)
	}
}

// conclude predicts the result of an accepted handoff, which consumes its key.
func (o *oracle) conclude(
	h *handoff.Handoff, runID string, v *handoff.Evaluation, failed handoff.ReasonCode,
	after town.State, names string,
) prediction {
	outcome := handoff.Outcome{Status: "executed", ReasonCode: "EXECUTED", Evaluation: *v,
		WorldState: &handoff.WorldState{SnapshotHash: &after.Hash,
			DecisionEpoch: &after.Snapshot.Day}}
	ended := "COMPLETED"
	if failed != "" {
		outcome.Status, outcome.ReasonCode, ended = "failed", failed, "FAILED"
	}
	result := handoff.NewResult(h, outcome)
	return predict(func() {
		o.accepted[h.IdempotencyKey], o.run(runID).status = result, ended
		if o.command == nil {
			o.use(h)
		}
		o.command = nil
		o.become(after)
	}, "handoff on town", names, judged(result))
}

// status returns the status of a question now.
func (o *oracle) status(q *question) string {
	switch {
	case q.verdict == "used":
		return "used"
	case q.verdict == "stale" || q.h.SnapshotHash != o.state.Hash:
		return "stale"
	case !o.now.Before(q.expires):
		return "expired"
	}
	return q.verdict
}

func isOpen(status string) bool { return status == "waiting" || status == "approved" }

func (q *question) isOf(h *handoff.Handoff) bool {
	hash, _ := bytesOf(h)
	return q.h.HandoffID == h.HandoffID && q.hash == hash
}

func bytesOf(h *handoff.Handoff) (hash string, size int) {
	data, _ := h.MarshalWire()
	return handoff.Hash(data), len(data)
}

// unapproved returns why a handoff may not be executed, "" if a person approved it.
func (o *oracle) unapproved(h *handoff.Handoff) handoff.ReasonCode {
	_, size := bytesOf(h)
	all, own := size, size
	for _, q := range o.questions {
		status := o.status(q)
		if q.isOf(h) && (isOpen(status) || status == "denied") {
			return map[string]handoff.ReasonCode{
				"waiting": "APPROVAL_REQUIRED", "denied": "APPROVAL_DENIED"}[status]
		}
		if isOpen(status) {
			all += q.size
			if q.h.Proposal.ActorID == h.Proposal.ActorID {
				own += q.size
			}
		}
	}
	switch {
	case size > 64<<10:
		return "APPROVAL_TOO_LARGE"
	case all > 128<<10 || own > 64<<10:
		return "APPROVALS_FULL"
	}
	return "ASK"
}

// ask lets a handoff wait. Expired questions are forgotten.
func (o *oracle) ask(h *handoff.Handoff) {
	o.questions = slices.DeleteFunc(o.questions, func(q *question) bool {
		return q.isOf(h) || !o.now.Before(q.expires)
	})
	hash, size := bytesOf(h)
	o.questions = append(o.questions, &question{h: h, hash: hash, size: size, verdict: "waiting",
		expires: o.now.Add(o.settings.ApprovalTimeout)})
}

// use spends the approval of an accepted handoff; others with its id wait no longer.
func (o *oracle) use(h *handoff.Handoff) {
	for _, q := range o.questions {
		if q.h.HandoffID == h.HandoffID && isOpen(q.verdict) {
			q.verdict = pick(q.verdict == "approved" && q.isOf(h), "used", "stale")
		}
	}
}

// decide takes a decision about the only question that it can be about.
func (o *oracle) decide(e *machine.Signal) prediction {
	var of, open []*question
	known := false
	for _, q := range o.questions {
		if q.h.HandoffID != e.HandoffID {
			continue
		}
		known = true
		if e.HandoffHash != "" && e.HandoffHash != q.hash {
			continue
		}
		if of = append(of, q); isOpen(o.status(q)) {
			open = append(open, q)
		}
	}
	switch {
	case !known:
		return refused("UNKNOWN_APPROVAL")
	case len(of) == 0:
		return refused("APPROVAL_DIFFERS")
	case len(open) > 1:
		return refused("APPROVAL_AMBIGUOUS")
	case len(open) == 1:
		of = open
	}
	q, approves := of[len(of)-1], e.Kind == machine.SignalApprove
	said := decided(approves, e.ActorID)
	switch status := o.status(q); {
	case status == "stale" || status == "expired":
		return refused("APPROVAL_STALE")
	case status == "waiting":
		return predict(func() {
			q.verdict = pick(approves, "approved", "denied")
			q.by, q.expires = e.ActorID, o.now.Add(o.settings.ApprovalTimeout)
		}, "decided on town", signalled, said)
	case q.by == e.ActorID && (status != "denied") == approves:
		return prediction{text: said}
	}
	return refused("ALREADY_DECIDED")
}

// extend predicts the record of events that the run's own subject lacks: the attempts' so far, and
// the resumption of a paused run before an attempt, or before an end that needs it. With ends it
// closes the run to others.
func (o *oracle) extend(starts, ends, resumes bool) prediction {
	c, r := o.command, o.run(o.command.run)
	var names []string
	lacks := func(name string, of int64, on bool) bool {
		name = fmt.Sprint(name, " ", of)
		if lacks := on && c.attempt > 1 && !r.has[name]; lacks {
			names = append(names, name)
			return true
		}
		return false
	}
	lacks("StepFailed", c.attempt-1, true)
	starting, status := lacks("StepStarted", c.attempt, starts), r.status
	added := slices.Clone(names)
	if r.status == "PAUSED" && (starting || resumes && !r.closed) {
		names, status = append([]string{"RunResumed"}, names...), "RUNNING"
	}
	if len(names) == 0 && (!ends || r.closed) {
		return prediction{}
	}
	p := o.runRecord(c.run, false, status, ends || r.closed, strings.Join(names, ", "))
	return predict(func() {
		p.thens[0]()
		for _, name := range added {
			r.has[name] = true
		}
	}, p.text)
}

// outcome ends the run, or begins another attempt.
func (o *oracle) outcome(v apply.AttemptResult) prediction {
	c, after := o.command, o.command.expected
	reached, reason, later := c.reached || v.MayHaveReached, handoff.ReasonCode(""), true
	switch {
	case v.Applied && v.Snapshot != nil:
		reported, err := town.Parse(v.Snapshot, schemas.Limits{})
		if err != nil || reported.Snapshot.TownID != c.h.Proposal.TownID {
			reason = "PLUGIN_STATE_INVALID"
			break
		}
		reported.Snapshot.Day = max(reported.Snapshot.Day, after.Snapshot.Day)
		after = town.NewState(reported.Snapshot)
	case !v.Applied:
		reason, later = v.Failure.Reason, v.Failure.Retryable
		if reason == "PLUGIN_UNAVAILABLE" && reached && c.binding != "rcon" {
			reason = "PLUGIN_TIMEOUT"
		}
	}
	ends := reason == "" || !later || c.attempt >= o.settings.Retry.Attempts
	return o.followed(o.extend(true, ends, ends), c.run, func() prediction {
		return o.ended(reason, ends, reached, after)
	})
}

// ended predicts the record of an attempt's end: the end of the run, or the next attempt.
func (o *oracle) ended(
	reason handoff.ReasonCode, ends, reached bool, after town.State,
) prediction {
	c := o.command
	if !ends {
		return predict(func() {
			pause := o.settings.Retry.Backoff << (c.attempt - 1)
			c.attempt, c.reached, c.unreached = c.attempt+1, reached, false
			c.notBefore = o.now.Add(pause)
			c.deadline = c.notBefore.Add(o.settings.Retry.Deadline)
		}, "pending on town")
	}
	if reason != "" {
		after = o.state
	}
	v1 := handoff.Evaluation{DuplicateCheck: handoff.DuplicateReport{Evaluated: true},
		StaleCheck: handoff.StaleReport{Evaluated: true, Passed: true,
			ActualSnapshotHash: &o.state.Hash, ActualDecisionEpoch: &o.state.Snapshot.Day},
		Preconditions: handoff.PreconditionReport{Evaluated: true, Passed: true,
			Failures: []handoff.Failure{}}}
	names := pick(o.run(c.run).status == "PAUSED", "RunResumed, ", "") + pick(reason == "",
		fmt.Sprintf("StepCompleted %d, RunCompleted", c.attempt),
		fmt.Sprintf("StepFailed %d, RunFailed", c.attempt))
	return o.conclude(c.h, c.run, &v1, reason, after, names)
}

// cancel ends a run that waits, or the command's if no request can have arrived, or by force; a retry fails
// by force.
func (o *oracle) cancel(e *machine.Cancel) prediction {
	c, r := o.command, o.run(e.Signal.RunID)
	switch {
	case (c == nil || c.run != e.Signal.RunID) && !r.closed && (r.status == "PENDING" || r.status == "PAUSED"):
		return o.abandon(e.Signal.RunID)
	case c == nil || c.run != e.Signal.RunID:
		return refused("RUN_NOT_WAITING")
	case e.Signal.Force && c.retry:
		return o.outcome(apply.AttemptResult{Failure: &apply.Failure{Reason: handoff.ReasonCode(
			pick(c.binding == "rcon", "RCON_IN_DOUBT", "PLUGIN_TIMEOUT"))}})
	case !e.Signal.Force && (c.reached || e.Reach != apply.Unreached):
		return refused("RUN_IN_HAND")
	}
	return o.followed(o.extend(true, true, false), c.run, func() prediction {
		return predict(func() { o.command, o.run(c.run).status = nil, "CANCELLED" },
			"cancelled on town", fmt.Sprintf("StepFailed %d, RunCancelled", c.attempt))
	})
}

// town renders the oracle's town, and townOf the machine's.
func (o *oracle) town() string {
	pending, asked := "", []string{}
	if c := o.command; c != nil {
		pending = fmt.Sprint(c.run, c.binding, c.attempt, c.reached, c.unreached, c.retry, c.expected.Hash,
			c.notBefore, c.deadline)
	}
	for _, q := range o.questions {
		if status := o.status(q); status != "stale" && status != "expired" {
			asked = append(asked, q.hash+" "+status)
		}
	}
	return fmt.Sprint(o.state.Hash, o.binding, o.policy, o.paused[o.id], pending, asked)
}

func townOf(t *machine.Town, now time.Time) string {
	paused, pending, asked := "", "", []string{}
	if t.Paused != nil {
		paused = t.Paused.SignalID
	}
	if p := t.Pending; p != nil {
		pending = fmt.Sprint(p.Run.RunID, p.Binding, p.Attempt, p.MayHaveReached, p.StoppedUnreached, p.RetryOf != nil,
			handoff.Hash(p.Expected), p.NotBefore, p.Deadline)
	}
	for _, a := range t.Approvals {
		if status := a.Status(t.State.Hash, now); status != "stale" && status != "expired" {
			asked = append(asked, a.HandoffHash+" "+string(status))
		}
	}
	return fmt.Sprint(t.State.Hash, t.Binding, t.Policy, paused, pending, asked)
}

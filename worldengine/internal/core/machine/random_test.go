package machine_test

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

var (
	towns = flag.Int("machine.towns", 80, "how many towns TestStep_Oracle drives")
	seed  = flag.Uint64("machine.seed", 1, "the seed of the first of them")
)

// TestStep_Oracle gives towns random inputs, and compares each output with the oracle's prediction.
// Some records lose their race, and the writer dies after others: the next one has only the log. In
// the end fsck makes every record again, and every run is projected.
func TestStep_Oracle(t *testing.T) {
	t.Parallel()
	const lanes = 4
	for lane := range lanes {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			for n := *seed + uint64(lane); n < *seed+uint64(*towns); n += lanes {
				w := newWalk(t, n)
				for range 60 {
					w.act()
				}
				w.check()
			}
		})
	}
}

// walk is one town, with its writer and its log.
type walk struct {
	*oracle
	t                  *testing.T
	g                  *rand.Rand
	seed               string // how to repeat it
	machine            machine.Town
	control            machine.Town // the world's pause
	log                []*message
	facts              logtest.Facts
	tails              map[string]*machine.RunTail
	receipts           map[string]*dedupe.Receipt
	waiting, remaining []*delivery
	sent               []*handoff.Handoff
	past               []town.State
	lives              int
	calm               bool // nothing gets lost
}

// delivery is a handoff that waits in the writer for its town.
type delivery struct {
	h      *handoff.Handoff
	run    runevents.Identity
	retry  *apply.RetryOf
	queued bool // if the run is not recorded
}

// message is a stored message of the log.
type message struct {
	*jetstream.RawStreamMsg
	rec *machine.Record
}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{t: t, g: rand.New(rand.NewPCG(seed, 1)),
		seed: fmt.Sprint("-machine.towns=1 -machine.seed=", seed), facts: logtest.Facts{},
		tails: map[string]*machine.RunTail{}, receipts: map[string]*dedupe.Receipt{},
		oracle: &oracle{now: time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC),
			paused: map[string]string{}, accepted: map[string]*handoff.Result{},
			runs: map[string]*course{}}}
	w.id = one(w, "oak", "Town 1.>", "Zürich")
	w.configure()
	return w
}

func one[T any](w *walk, of ...T) T { return of[w.g.IntN(len(of))] }

func (w *walk) rare(n int) bool { return w.g.IntN(n) == 0 }

// configure starts a writer with settings of its own.
func (w *walk) configure() {
	rules := town.DefaultRules()
	if w.rare(3) {
		rules.ProjectStep, rules.CasualTalk = 0.3, 0
	}
	w.settings = &machine.Settings{Rules: &rules, Binding: one(w, apply.Bindings()...),
		ApprovalPolicy: *w.somePolicy(), ApprovalTimeout: time.Hour,
		Retry: apply.RetryPolicy{Deadline: 10 * time.Second, Attempts: int64(1 + w.g.IntN(3)),
			Backoff: time.Second}}
}

func (w *walk) somePolicy() *approval.Policy {
	p, err := approval.Parse(one(w,
		"none", "none", "PROJECT_ADVANCE,TOWNSFOLK_TALK", "SALVAGE_PLAN"))
	require.NoError(w.t, err)
	return &p
}

func (w *walk) newID() string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", w.g.Uint32(), w.g.Uint64()>>16)
}

func (w *walk) newRun(planID, version string) runevents.Identity {
	return runevents.Identity{RunID: w.newID(), TenantID: "default", ProjectID: "main",
		EnvironmentID: "local", PlanID: planID, PlanVersion: version}
}

func (w *walk) runOf(h *handoff.Handoff) runevents.Identity {
	return w.newRun(h.ProposalID, h.Proposal.SchemaVersion)
}

// act gives the town one input, or the few of a delivery.
func (w *walk) act() {
	w.now = w.now.Add(time.Duration(w.g.IntN(6*60_000)) * time.Millisecond)
	switch n := w.g.IntN(16); {
	case len(w.log) == 0 && !w.rare(8):
		w.putSome()
	case w.command != nil && w.rare(2):
		w.stepCommand()
	case n < 5:
		w.deliver(w.propose())
	case n < 7:
		w.retrySome()
	case n < 9 && len(w.waiting) > 0:
		w.judge(pop(w, &w.waiting))
	case n == 9:
		w.endSome()
	case n < 12:
		w.decideSome()
	case n == 12:
		h := w.propose()
		w.step(&machine.Judge{Handoff: h, DryRun: true, Run: w.runOf(h)}, "")
	default:
		w.disturb()
	}
}

func pop[T any](w *walk, list *[]T) T {
	i := w.g.IntN(len(*list))
	v := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return v
}

// propose returns a handoff: a new one, one that was sent before, or another with its key.
func (w *walk) propose() *handoff.Handoff {
	from := w.state
	if len(w.past) > 0 && w.rare(6) || !from.Exists() {
		from = one(w, append(w.past, w.somewhere())...)
	}
	p := handoff.Proposal{TownID: w.id, ActorID: one(w, "mayor-1", "mayor-2"), Priority: 0.5,
		SnapshotHash: from.Hash, DecisionEpoch: from.Epoch(), Reason: w.newID(),
		Type: one(w, handoff.ProposalTypes()...), ReasonTags: []string{}}
	if len(w.sent) > 0 && w.rare(3) {
		before := w.sent[len(w.sent)-1-w.g.IntN(min(len(w.sent), 4))]
		if w.rare(2) {
			return before
		}
		if p.ProposalID = before.ProposalID; w.rare(2) { // other bytes, and one handoffId
			p = before.Proposal
			p.Reason = w.newID()
		}
	}
	if p.Args == nil {
		p.Args = map[string]string{p.Type.ArgumentName(): map[handoff.ProposalType]string{
			handoff.PlanSalvage:     one(w, "scarcity", "dread", "general"),
			handoff.TalkToTownsfolk: one(w, "morale-boost", "casual"),
			handoff.AdvanceProject:  one(w, "wall", "wall", "gate", "moat"),
		}[p.Type]}
		if p.Argument() == "" {
			p.Args[p.Type.ArgumentName()] = one(w, "sq-1", "sq-2")
		}
		if w.rare(4) {
			p.Preconditions = []handoff.Precondition{{Kind: one(w, handoff.ProjectExists,
				handoff.MissionAbsent, "moon_is_full"), TargetID: one(w, "wall", "moat")}}
		}
		if w.rare(20) {
			p.Reason = strings.Repeat("x", one(w, 30, 40, 70)<<10)
		}
	}
	h, err := handoff.New(p)
	require.NoError(w.t, err)
	w.sent = append(w.sent, h)
	return h
}

// somewhere returns a state that the town may be put into.
func (w *walk) somewhere() town.State {
	if w.state.Exists() && !w.rare(6) {
		s := *w.state.Snapshot
		s.Day = min(s.Day+int64(w.g.IntN(3)-1), town.MaxDay)
		s.Pressure.Threat = one(w, 0.5, 0.7)
		return town.NewState(&s)
	}
	return towntest.Threatened(func(s *town.Snapshot) {
		if s.TownID = w.id; w.rare(20) {
			s.Day = one[int64](w, 40, town.MaxDay)
		}
	})
}

func (w *walk) putSome() {
	a := machine.Attributes{Binding: one(w, "", "", "local", apply.Plugin, apply.Plugin, apply.RCON)}
	if w.rare(3) {
		a.Approval = w.somePolicy()
	}
	expected := w.state.Hash
	if w.rare(6) {
		expected = one(w, "", "another")
	}
	if w.rare(3) && w.state.Exists() {
		w.step(&machine.Patch{Patch: map[string]any{"day": one(w, 1.0, float64(w.state.Epoch())),
			"pressure": map[string]any{"hope": one(w, 0.1, 0.2, 3)}},
			Expected: expected, Attributes: a, ActorID: "ada"}, "")
		return
	}
	w.step(&machine.Put{State: w.somewhere(), Expected: expected, Attributes: a, ActorID: "ada"}, "")
}

// disturb gives the town an input that may win the race against a record.
func (w *walk) disturb() {
	switch w.g.IntN(6) {
	case 0, 1:
		w.putSome()
	case 2, 3, 4:
		w.pauseSome()
	default:
		if w.command != nil {
			w.step(&machine.RecordReach{MayHaveReached: w.rare(2), StoppedUnreached: w.rare(2)}, "")
		} else {
			w.step(w.retried(), "")
		}
	}
}

// pauseSome pauses or resumes the town, or the world.
func (w *walk) pauseSome() {
	s := w.signal(pick(w.rare(4) == (w.pausedBy() == nil), machine.SignalResume,
		machine.SignalPause))
	if w.control.Paused != nil || w.machine.Paused == nil && w.rare(4) {
		s.TownID = ""
	}
	w.step(s, "")
}

func (w *walk) signal(kind machine.SignalKind) *machine.Signal {
	s := machine.Signal{Kind: kind, TownID: w.id, ActorID: one(w, "mara", "olga"),
		Run: w.newRun(machine.SignalPlan, machine.SignalVersion)}.WithDefaults()
	return &s
}

// retried is the refusal of a retry.
func (w *walk) retried() *machine.RecordSignal {
	return &machine.RecordSignal{Signal: w.signal(machine.SignalRetry), Code: wire.CodeRunRetried}
}

func (w *walk) decideSome() {
	s := w.signal(one(w, machine.SignalApprove, machine.SignalApprove, machine.SignalDeny))
	s.HandoffID = "handoff_none"
	if n := len(w.questions); n > 0 && !w.rare(10) {
		q := w.questions[max(n-1-w.g.IntN(2), 0)]
		s.HandoffID, s.HandoffHash = q.h.HandoffID, one(w, "", q.hash, q.hash, "another")
	}
	w.step(s, "")
	if s.HandoffHash != "" && w.rare(2) {
		w.deliver(w.questions[len(w.questions)-1].h)
	}
}

func (w *walk) deliver(h *handoff.Handoff) {
	w.judge(&delivery{h: h, run: w.runOf(h),
		queued: w.rare(2)})
}

// startOf returns how the run of a delivery begins.
func (w *walk) startOf(d *delivery) machine.RunStart {
	b := machine.RunStart{Queued: d.queued, Waited: time.Second}
	if d.retry != nil {
		b.Retry = &machine.RetryRequest{RunID: d.retry.RunID, ActorID: "ada"}
	}
	return b
}

func (w *walk) pausedBy() *messages.PausedBy { return cmp.Or(w.machine.Paused, w.control.Paused) }

// judge judges a delivery, or lets it wait.
func (w *walk) judge(d *delivery) {
	lives, runID := w.lives, d.run.RunID
	prior, tail := w.receipts[d.h.IdempotencyKey], w.tails[runID]
	busy := w.command != nil || w.pausedBy() != nil
	switch {
	case tail != nil && tail.Cancelled && !w.rare(4):
		return
	case d.retry != nil && prior.RunID != d.retry.RunID:
		w.step(w.retried(), "")
		if tail != nil {
			w.remaining = append(w.remaining, d)
		}
		return
	case busy && !w.rare(6):
		if w.rare(2) {
			w.step(&machine.Wait{Handoff: d.h, Run: d.run, Start: w.startOf(d), By: w.pausedBy()}, runID)
		}
		d.queued = true
	default:
		e := &machine.Judge{Handoff: d.h, Run: d.run, Start: w.startOf(d), RetryOf: d.retry,
			Recorded: tail != nil || w.rare(30)}
		if w.step(e, runID) {
			return
		}
	}
	if !w.run(runID).canceled {
		w.keep(d, lives)
	}
}

// keep lets a delivery wait, if its writer lives.
func (w *walk) keep(d *delivery, lives int) {
	if lives == w.lives {
		w.waiting = append(w.waiting, d)
	} else if w.tails[d.run.RunID] != nil {
		w.remaining = append(w.remaining, d)
	}
}

func (w *walk) retrySome() {
	for _, h := range w.sent {
		r := w.receipts[h.IdempotencyKey]
		if r != nil && r.ReasonCode == apply.ReasonGameUnavailable && r.HandoffID == h.HandoffID &&
			!w.rare(3) {
			w.judge(&delivery{h: h, run: w.runOf(h),
				retry: &apply.RetryOf{RunID: r.RunID, LogSeq: r.LogSeq}})
			return
		}
	}
}

// endSome ends a run that nobody judges: a dead writer's, or a waiting delivery's.
func (w *walk) endSome() {
	from, e := &w.remaining, &machine.CancelWaiting{Why: machine.Cancellation{Code: machine.CancelledLeft}}
	if len(*from) == 0 {
		from = &w.waiting
	}
	if len(*from) == 0 {
		return
	}
	d, lives := pop(w, from), w.lives
	if w.rare(3) {
		s := w.signal(machine.SignalCancel)
		s.RunID = d.run.RunID
		w.step(&machine.Cancel{Signal: s}, s.RunID)
		if !w.run(s.RunID).canceled {
			w.keep(d, lives)
		}
		return
	}
	if e.Run = d.run; from == &w.waiting {
		e.Handoff, e.Retry = d.h, w.startOf(d).Retry
	}
	// The writer of a delivery may not know that its run was cancelled.
	stored := w.step(e, d.run.RunID)
	if s := w.signal(machine.SignalCancel); stored {
		s.RunID = d.run.RunID
		w.step(&machine.RecordSignal{Signal: s}, "")
	}
	if stored && w.rare(3) || !stored && !w.run(d.run.RunID).canceled {
		*from = append(*from, d)
	}
}

// stepCommand gives the town an input about the pending command.
func (w *walk) stepCommand() {
	v := apply.AttemptResult{At: w.now.Add(-time.Duration(w.g.IntN(900)) * time.Millisecond),
		Attempt: w.command.attempt, MayHaveReached: w.rare(8)}
	paused := w.run(w.command.run).status == "PAUSED"
	if paused != (w.pausedBy() != nil) && w.rare(2) {
		w.step(&machine.PauseRun{By: w.pausedBy()}, "")
		return
	}
	of := w.g.IntN(20)
	if w.rare(4) && (w.command.retry || paused) {
		of = 13
	}
	switch of {
	default:
		w.pauseSome()
	case 0, 1, 2:
		v.Applied, v.MayHaveReached = true, true
		s := *w.command.expected.Snapshot
		s.Pressure.Dread = 0.5
		s.Day += int64(w.g.IntN(3) - 1)
		if w.rare(5) {
			s.TownID = "another"
		}
		v.Snapshot = one(w, nil, town.NewState(&s).Canonical, town.NewState(&s).Canonical, []byte("{}"))
	case 3:
		v.MayHaveReached = true
		v.Failure = &apply.Failure{Reason: apply.ReasonPluginRejected, Code: "NO", Message: "No.",
			Retryable: w.rare(2)}
	case 4:
		v.MayHaveReached, v.Failure = true, apply.NoAnswer(true, nil)
	case 5, 6, 7, 8:
		v.Failure = apply.NoAnswer(false, nil)
	case 9, 10:
		w.step(&machine.RecordAttempt{Started: w.rare(2)}, "")
	case 11, 12:
		w.step(&machine.PauseRun{By: w.pausedBy()}, "")
	case 13, 14:
		w.cancelSome()
	case 15:
		w.appendSome()
	case 16:
		w.step(&machine.RecordReach{MayHaveReached: w.rare(2), StoppedUnreached: w.rare(2)}, "")
	}
	if v.Applied || v.Failure != nil {
		w.step(&machine.EndAttempt{AttemptResult: v}, "")
	}
}

func (w *walk) cancelSome() {
	s := w.signal(machine.SignalCancel)
	s.Force, s.RunID = w.rare(pick(w.command.retry, 2, 3)), w.command.run
	if w.rare(8) {
		s.RunID = "another"
	}
	w.step(&machine.Cancel{Signal: s, Reach: one(w, apply.Unreached, apply.Unreached,
		apply.ReachUnknown, apply.MayHaveReached)}, s.RunID)
}

// appendSome appends an event of the plugin to the run of the command.
func (w *walk) appendSome() {
	run, tail := w.machine.Pending.Run, w.tailOf("")
	if w.run(run.RunID).status != "RUNNING" || tail.Closed {
		return
	}
	w.store(&machine.Record{Kind: machine.KindAppended,
		TownID: w.id, Run: &runlog.Run{Identity: run, FirstSeq: tail.Next,
			Events: []runlog.Event{{EventID: w.newID(), EventType: runevents.StepStarted,
				StepID: "own-" + w.newID(), LogicalAttemptID: 1,
				EmittedAt: runevents.Timestamp(w.now)}}}}, machine.Town{}, tail)
}

// tailOf returns the end of a run, or of the command's.
func (w *walk) tailOf(runID string) *machine.RunTail {
	emitted := int64(0)
	if p := w.machine.Pending; p != nil && (runID == "" || runID == p.Run.RunID) {
		runID, emitted = p.Run.RunID, p.Emitted
	}
	tail := cmp.Or(w.tails[runID], machine.NewTail(nil, emitted))
	tail.Next = max(tail.Next, emitted+1)
	return tail
}

// step steps an input, and reports whether the decision is stored.
func (w *walk) step(event machine.Event, runID string, drawn ...runlog.DrawnID) bool {
	t, townID := w.machine, w.id
	if s, ok := event.(*machine.Signal); ok && s.TownID == "" {
		t, townID = w.control, ""
	}
	h, _ := event.(*machine.Judge)
	if h != nil && h.RetryOf == nil {
		h.Prior = w.receipts[h.Handoff.IdempotencyKey]
	}
	in := &machine.Input{TownID: townID, At: w.now, Drawn: drawn, Tail: w.tailOf(runID), Event: event}
	if h != nil && !h.Recorded {
		in.Tail = nil
	}
	for range event.MaxIDs() {
		in.IDs = append(in.IDs, w.newID())
	}
	want, before := w.predict(townID, event), w.bytesOf(t)
	out, err := machine.Step(t, in, w.settings)
	require.Equal(w.t, want.text, outputText(&out, err), "%s: %T", w.seed, event)
	require.Equal(w.t, before, w.bytesOf(t), "the town is left as it is")
	if err != nil || out.Record == nil {
		return false
	}
	again, err := machine.Step(t, in, w.settings)
	require.NoError(w.t, err)
	require.Equal(w.t, w.body(&out), w.body(&again), "the same bytes")
	if h != nil && h.DryRun {
		return false
	}
	if p := t.Pending; p != nil {
		drawn = append(slices.Clip(drawn), p.EventIDs...)
	}
	then := 0
	for _, rec := range []*machine.Record{out.RunRecordBefore, out.Record, out.RunRecordAfter} {
		switch {
		case rec == nil:
			continue
		case rec.Run != nil:
			w.requireIDs(drawn, runlog.EventIDs(rec.Run))
		}
		switch lost := !w.calm && w.rare(8); {
		case lost && rec == out.RunRecordAfter:
			continue // nothing depends on it
		case lost:
			return w.lose(event, runID, rec)
		}
		w.store(rec, out.NextTown, in.Tail)
		want.thens[then]()
		then++
		require.Equal(w.t, w.town(), townOf(&w.machine, w.now), "%s: %T", w.seed, event)
		if !w.calm && w.rare(pick(rec == out.RunRecordBefore, 4, 10)) {
			w.crash()
			return rec != out.RunRecordBefore
		}
	}
	return true
}

// requireIDs requires that events keep the ids that were drawn for them.
func (w *walk) requireIDs(drawn, now []runlog.DrawnID) {
	for _, id := range drawn {
		for _, now := range now {
			require.False(w.t, id.IdempotencyKey == now.IdempotencyKey && id != now, "another id")
		}
	}
}

// lose lets another record win the race, and steps the input again.
func (w *walk) lose(event machine.Event, runID string, rec *machine.Record) bool {
	w.calm = true
	defer func() { w.calm = false }()
	h, ok := event.(*machine.Judge)
	if ok && h.RetryOf == nil && w.rare(3) { // the same delivery elsewhere
		w.step(&machine.Judge{Handoff: h.Handoff, Run: w.runOf(h.Handoff)}, "")
	} else if w.rare(2) {
		w.disturb()
	}
	if ok {
		return w.step(event, runID, runlog.EventIDs(rec.Run)...)
	}
	return w.step(event, runID)
}

// body returns the bytes of the records of an output.
func (w *walk) body(out *machine.Output) (all string) {
	made, after := *out.Record, out.NextTown
	if made.Subject() == machine.TownSubject {
		made.SetState(&after)
	}
	for _, rec := range []*machine.Record{out.RunRecordBefore, &made, out.RunRecordAfter} {
		if rec != nil {
			data, err := rec.MarshalJSON()
			require.NoError(w.t, err)
			all += string(data)
		}
	}
	return all
}

func (w *walk) bytesOf(t machine.Town) string {
	return w.body(&machine.Output{Record: new(machine.Record), NextTown: t})
}

// store appends a record to the log, after which the town is now.
func (w *walk) store(rec *machine.Record, now machine.Town, tail *machine.RunTail) {
	seq, after, runID, to := uint64(len(w.log)+1), (*machine.Town)(nil), "", rec.Subject()
	guard := []uint64{w.machine.Seq, 0, 0, 0, w.control.Seq}[to]
	switch to {
	case machine.TownSubject:
		after = &now
	case machine.RunSubject:
		guard = tail.Guard
	}
	if rec.Run != nil {
		runID = rec.Run.RunID
	}
	token := wire.TownToken(w.id)
	subject := []string{layout.LogSubject("main", token),
		layout.RefusedSubject("main", pick(w.state.Exists(), token, layout.UnknownTownToken)),
		layout.SignalSubject("main"), layout.RunSubject("main", runID), layout.PauseSubject("main")}[to]
	msg, err := records.Encode(rec, subject, after)
	require.NoError(w.t, err)
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(guard, 10)}
	w.facts.Require(w.t, subject, rec)
	w.log = append(w.log, &message{&jetstream.RawStreamMsg{Subject: msg.Subject, Sequence: seq,
		Header: msg.Header, Data: msg.Data, Time: w.now}, rec})
	switch to {
	case machine.TownSubject:
		if w.state.Exists() {
			w.past = append(w.past, w.state)
		}
		w.machine = now
		w.machine.Seq = seq
	case machine.PauseSubject:
		w.control = machine.Town{Seq: seq, Paused: rec.Paused}
	case machine.RunSubject:
		tail.Add(rec, seq)
		w.tails[runID] = tail
	}
	w.index(rec, seq)
}

// index remembers the key of an accepted handoff.
func (w *walk) index(rec *machine.Record, seq uint64) {
	if rec.Kind == machine.KindConcluded {
		receipt, err := dedupe.Read(w.id, seq, rec.Run.RunID, rec.Result)
		require.NoError(w.t, err)
		w.receipts[receipt.Key] = receipt
	}
}

// crash replaces the writer by one that has the log alone, and perhaps other settings.
func (w *walk) crash() {
	w.lives++
	known := w.machine
	w.tails, w.receipts = map[string]*machine.RunTail{}, map[string]*dedupe.Receipt{}
	for i, m := range w.log {
		rec, err := records.Read(m.Data)
		require.NoError(w.t, err)
		switch seq := uint64(i + 1); rec.Subject() {
		case machine.PauseSubject:
			w.control = machine.Town{Seq: seq, Paused: rec.Paused}
		case machine.TownSubject:
			w.machine, err = records.ReadTown(m.RawStreamMsg)
			require.NoError(w.t, err)
		case machine.RunSubject:
			w.tails[rec.Run.RunID] = cmp.Or(w.tails[rec.Run.RunID], machine.NewTail(nil, 0))
			w.tails[rec.Run.RunID].Add(rec, seq)
		}
		w.index(rec, uint64(i+1))
	}
	require.Equal(w.t, w.bytesOf(known), w.bytesOf(w.machine))
	for _, d := range w.waiting {
		w.keep(d, w.lives-1)
	}
	w.waiting = nil
	if w.rare(3) {
		w.configure()
	}
	if w.command != nil && !w.rare(3) {
		w.step(&machine.RecordReach{MayHaveReached: true}, "")
	}
}

// check asserts that the whole log is sound.
func (w *walk) check() {
	l := fsck.NewLogChecker("main", func(seq uint64) (*jetstream.RawStreamMsg, error) {
		return w.log[seq-1].RawStreamMsg, nil
	})
	all, ids := map[string][]runevents.Record{}, map[string]bool{}
	for _, m := range w.log {
		found, err := l.Check(m.RawStreamMsg)
		require.NoError(w.t, err)
		require.Empty(w.t, found, w.seed)
		if m.rec.Run != nil {
			all[m.rec.Run.RunID] = append(all[m.rec.Run.RunID], m.rec.Run.Records(w.now)...)
		}
	}
	for runID, records := range all {
		about := fmt.Sprintf("%s: run %s", w.seed, runID)
		ended, status := 0, "COMPLETED FAILED"
		for i, r := range records {
			require.Equal(w.t, int64(i+1), r.RunSeq, about)
			require.False(w.t, ids[r.EventID] || ids[r.IdempotencyKey], about)
			ids[r.EventID], ids[r.IdempotencyKey] = true, true
			ended += pick(r.EventType.EndsRun(), 1, 0)
		}
		snapshot, alerts, err := runevents.Project(runID, records)
		require.NoError(w.t, err)
		require.Empty(w.t, alerts, about)
		if r := w.runs[runID]; r != nil {
			status = r.status
		}
		require.Contains(w.t, status, string(snapshot.Status), about)
		require.Equal(w.t, pick(snapshot.Status.Terminal(), 1, 0), ended, about)
		require.Equal(w.t, ended == 0, l.Runs[runID] != nil, about)
	}
}

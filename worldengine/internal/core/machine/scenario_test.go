package machine_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/messages"
)

// TestScenarios plays testdata. Inputs:
//
//	> wait DURATION
//	> put [DAY] | patch JSON | remove
//	> bind local|plugin, > approve TYPE,…|none: a put with attributes
//	> handoff NAME [advance|talk|salvage|accept|complete|fail ARGUMENT [if PROJECT] [of NAME] [old]]
//	  [dry|retry]: the kind only at first; "if" requires a project, "of" takes the key of another
//	  handoff, "old" proposes from the state before the last change, "retry" retries its failed run
//	> pause|resume [REASON] · > yes|no NAME by PERSON [REASON]
//	> applied [STATE], rejected [later], silent [last], unreached [arrived]: the end of the attempt of the
//	  pending command; a STATE is a snapshot.v1 that the game reports
//	> started, failed, asked, stops (its writer does, unreached): more about that attempt
//	> held [by SOMEBODY]: its run is paused, or goes on
//	> cancel [other|NAME] [force] [arrived|may]: of its run, or another one, with the known reach of its requests
//	> waits|abandoned NAME: a handoff that waits for its town is recorded, or is not going to be judged
//	> crash: the next record is stored, and its writer does not learn that
//	> ids N: the next input has only N ids
//	> payload EVENT [STEP]: the time and the payload of the last such event, with hashes cut short
func TestScenarios(t *testing.T) {
	t.Parallel()
	schemastest.Play(t, "testdata/*.txt", *machine.Rewrite, func(t *testing.T) func(string) []string {
		s := newScenario(t)
		return func(input string) []string { return s.input(strings.Fields(input)) }
	})
}

// scenario is a town, and a log that has the records of its steps.
type scenario struct {
	t        *testing.T
	settings machine.Settings
	now      time.Time
	ids      int
	town     machine.Town
	before   town.State // the state before the last change
	seq      uint64
	handoffs map[string]*handoff.Handoff
	receipts map[string]*dedupe.Receipt
	// tails are the ends of the runs on subjects of their own, and waitingRuns the runs of handoffs that
	// wait.
	tails       map[string]*machine.RunTail
	waitingRuns map[string]runevents.Identity
	crash       bool
	few         int               // the number of ids that the next input has; -1 for enough
	last        map[string]string // the time and the payload of the last event of each name
}

func newScenario(t *testing.T) *scenario {
	rules := town.DefaultRules()
	return &scenario{
		t: t, now: time.Date(2026, 2, 16, 12, 0, 0, 0, time.UTC),
		settings: machine.Settings{Rules: &rules, Binding: apply.Local,
			ApprovalTimeout: time.Hour, Retry: apply.RetryPolicy{Deadline: 10 * time.Second, Attempts: 3,
				Backoff: time.Second}},
		handoffs: map[string]*handoff.Handoff{}, receipts: map[string]*dedupe.Receipt{},
		tails: map[string]*machine.RunTail{}, waitingRuns: map[string]runevents.Identity{},
		last: map[string]string{}, few: -1,
	}
}

// input steps one input, and returns its output.
func (s *scenario) input(words []string) []string {
	argument := ""
	if len(words) > 1 {
		argument = words[1]
	}
	switch words[0] {
	case "wait":
		d, err := time.ParseDuration(argument)
		require.NoError(s.t, err)
		s.now = s.now.Add(d)
		return nil
	case "put":
		if argument != "" {
			day, err := strconv.ParseInt(argument, 10, 64)
			require.NoError(s.t, err)
			state := towntest.Threatened(func(s *town.Snapshot) { s.Day = day })
			return s.step(&machine.Put{State: state, ActorID: "ada"})
		}
		return s.put(machine.Attributes{})
	case "remove":
		return s.step(&machine.Remove{ActorID: "ada"})
	case "patch":
		patch, err := schemas.Decode([]byte(argument), schemas.Limits{})
		require.NoError(s.t, err)
		return s.step(&machine.Patch{Patch: patch, Expected: s.town.State.Hash, ActorID: "ada"})
	case "bind":
		return s.put(machine.Attributes{Binding: apply.Binding(argument)})
	case "approve":
		policy, err := approval.Parse(argument)
		require.NoError(s.t, err)
		return s.put(machine.Attributes{Approval: &policy})
	case "handoff":
		return s.handoff(words[1:])
	case "applied", "rejected", "silent", "unreached":
		return s.step(s.outcome(words))
	case "started", "failed":
		return s.step(&machine.RecordAttempt{Started: words[0] == "started"})
	case "asked", "stops":
		return s.step(&machine.RecordReach{MayHaveReached: words[0] == "asked", StoppedUnreached: words[0] == "stops"})
	case "held":
		e := new(machine.PauseRun)
		if argument != "" {
			e.By = cmp.Or(s.town.Paused, &messages.PausedBy{SignalID: "signal", ActorID: words[2]})
		}
		return s.step(e)
	case "cancel":
		return s.step(s.cancel(words))
	case "waits", "abandoned":
		return s.waiting(words)
	case "crash":
		s.crash = true
		return nil
	case "ids":
		few, err := strconv.Atoi(argument)
		require.NoError(s.t, err)
		s.few = few
		return nil
	case "payload":
		return []string{s.last[strings.Join(words[1:], " ")]}
	case "pause", "resume":
		kind := map[string]machine.SignalKind{
			"pause": machine.SignalPause, "resume": machine.SignalResume}[words[0]]
		return s.signal(machine.Signal{Kind: kind, ActorID: "ada", Reason: argument})
	case "yes", "no":
		kind := map[string]machine.SignalKind{
			"yes": machine.SignalApprove, "no": machine.SignalDeny}[words[0]]
		return s.signal(machine.Signal{Kind: kind, ActorID: words[3],
			HandoffID: s.handoffs[argument].HandoffID, Reason: strings.Join(words[4:], " ")})
	}
	s.t.Fatalf("no input is called %q", words[0])
	return nil
}

func (s *scenario) put(a machine.Attributes) []string {
	state, expected := towntest.Threatened(), ""
	if s.town.State.Exists() {
		state, expected = s.town.State, s.town.State.Hash
	}
	return s.step(&machine.Put{State: state, Expected: expected, Attributes: a, ActorID: "ada"})
}

func (s *scenario) signal(signal machine.Signal) []string {
	signal = signal.WithDefaults()
	signal.TownID = "town-threatened"
	signal.Run = s.run(machine.SignalPlan, machine.SignalVersion)
	return s.step(&signal)
}

// outcome returns the end of the attempt of the pending command, a second ago.
func (s *scenario) outcome(words []string) machine.Event {
	v := apply.AttemptResult{At: s.now.Add(-time.Second), MayHaveReached: words[len(words)-1] == "arrived"}
	if s.town.Pending != nil {
		v.Attempt = s.town.Pending.Attempt
	}
	switch words[0] {
	case "applied":
		v.Applied, v.MayHaveReached = true, true
		if len(words) > 1 {
			v.Snapshot = []byte(words[1])
		}
	case "rejected":
		v.MayHaveReached = true
		v.Failure = &apply.Failure{Reason: apply.ReasonPluginRejected, Code: "NO", Message: "No.",
			Retryable: words[len(words)-1] == "later"}
	case "silent":
		v.MayHaveReached = true
		v.Failure = apply.NoAnswer(true, nil)
	case "unreached":
		v.Failure = apply.NoAnswer(false, nil)
	}
	return &machine.EndAttempt{AttemptResult: v, LastAttempt: words[len(words)-1] == "last"}
}

// cancel returns an operator's signal that cancels the run of the pending command, or another run.
func (s *scenario) cancel(words []string) machine.Event {
	signal := machine.Signal{Kind: machine.SignalCancel, ActorID: "ada", Reason: "a mistake",
		TownID: "town-threatened", Run: s.run(machine.SignalPlan, machine.SignalVersion)}
	if s.town.Pending != nil {
		signal.RunID = s.town.Pending.Run.RunID
	}
	e := &machine.Cancel{Signal: &signal}
	for _, word := range words[1:] {
		switch word {
		case "force":
			signal.Force = true
		case "arrived":
			e.Reach = apply.MayHaveReached
		case "may":
			e.Reach = apply.ReachUnknown
		case "other":
			signal.RunID = "another run"
		default:
			signal.RunID = s.waitingRuns[word].RunID
		}
	}
	return e
}

// waiting steps an input about a handoff that waits for its town.
func (s *scenario) waiting(words []string) []string {
	name := words[1]
	if s.handoffs[name] == nil {
		s.handoffs[name] = s.propose(append([]string{name}, "advance", "wall"))
	}
	h := s.handoffs[name]
	run, known := s.waitingRuns[name]
	if !known {
		run = s.run(h.ProposalID, h.Proposal.SchemaVersion)
		s.waitingRuns[name] = run
	}
	wait := machine.Wait{Handoff: h, Run: run, Start: machine.RunStart{
		Queued: true, Waited: time.Second}}
	if s.town.Paused != nil {
		wait.By = s.town.Paused
	}
	if words[0] == "waits" {
		return s.step(&wait)
	}
	return s.step(&machine.CancelWaiting{Run: run, Handoff: h,
		Why: machine.Cancellation{Reason: "Nobody waits for it."}})
}

// tail returns the end of the run that an event is about, nil for none.
func (s *scenario) tail(event machine.Event) *machine.RunTail {
	runID, emitted := event.TailRun(&s.town)
	if runID == "" {
		return nil
	}
	if s.tails[runID] == nil {
		s.tails[runID] = machine.NewTail(nil, emitted)
	}
	s.tails[runID].Next = max(s.tails[runID].Next, emitted+1)
	return s.tails[runID]
}

// handoff delivers a handoff; one whose name is known is the same handoff again.
func (s *scenario) handoff(words []string) []string {
	name, e := words[0], machine.Judge{}
	if s.handoffs[name] == nil {
		s.handoffs[name] = s.propose(words)
	}
	e.Handoff = s.handoffs[name]
	e.DryRun = words[len(words)-1] == "dry"
	e.Prior = s.receipts[e.Handoff.IdempotencyKey]
	if words[len(words)-1] == "retry" {
		e.RetryOf = &apply.RetryOf{RunID: e.Prior.RunID, LogSeq: e.Prior.LogSeq}
		e.Start.Retry = &machine.RetryRequest{RunID: e.Prior.RunID, ActorID: "ada"}
		e.Prior = nil
	}
	run, waited := s.waitingRuns[name]
	if !waited {
		run = s.run(e.Handoff.ProposalID, e.Handoff.Proposal.SchemaVersion)
	}
	e.Run, e.Recorded = run, waited
	return s.step(&e)
}

// step steps an input, and stores the record.
func (s *scenario) step(event machine.Event) []string {
	in := &machine.Input{TownID: "town-threatened", At: s.now, Event: event, Tail: s.tail(event)}
	for range in.Event.MaxIDs() {
		in.IDs = append(in.IDs, s.id())
	}
	if s.few >= 0 {
		in.IDs, s.few = in.IDs[:s.few], -1
	}
	before := fmt.Sprintf("%+v", in.Event)
	out, err := machine.Step(s.town, in, &s.settings)
	require.Equal(s.t, before, fmt.Sprintf("%+v", in.Event), "an input stays unchanged")
	if err != nil {
		return []string{"error " + err.Error()}
	}
	again, err := machine.Step(s.town, in, &s.settings)
	require.NoError(s.t, err)
	require.Equal(s.t, out, again, "the same input of the same town has the same output")
	if h, ok := event.(*machine.Judge); ok && h.DryRun {
		return slices.Concat(s.recordText(&out, out.Record), s.answerText(&out))
	}
	var said []string
	for _, rec := range []*machine.Record{out.RunRecordBefore, out.Record, out.RunRecordAfter} {
		if rec == nil {
			continue
		}
		said = append(said, s.recordText(&out, rec)...)
		s.seq++
		switch {
		case rec.Subject() == machine.RunSubject:
			in.Tail.Add(rec, s.seq)
		case rec.Subject() == machine.TownSubject:
			if out.NextTown.State.Hash != s.town.State.Hash {
				s.before = s.town.State
			}
			s.town = out.NextTown
			s.town.Seq = s.seq
			s.town.Approvals = s.town.Approvals.CloseStale(s.town.State.Hash)
		}
		if rec == out.Record && out.Answer != nil && out.Answer.Result.Accepted {
			receipt, err := dedupe.Read("town-threatened", s.seq, out.Answer.RunID, out.Answer.JSON)
			require.NoError(s.t, err)
			s.receipts[receipt.Key] = receipt
		}
		if s.crash { // before the next record, or the answer
			s.crash = false
			return append(said, "crash")
		}
	}
	return append(said, s.answerText(&out)...)
}

// recordText renders a record of an output for people.
func (s *scenario) recordText(out *machine.Output, rec *machine.Record) []string {
	line := fmt.Sprintf("record %s (%s)", rec.Kind, rec.Purpose)
	if rec.Subject() == machine.TownSubject {
		line += fmt.Sprintf(" day %d", out.NextTown.LastState().Epoch())
	}
	if rec.Closing {
		line += " closing"
	}
	if rec == out.Record && out.Unguarded {
		line += " free"
	}
	said := []string{line}
	if rec.Run != nil && len(rec.Run.Events) > 0 {
		said = append(said, "events "+events(rec.Run))
		for _, e := range rec.Run.Events {
			payload := hashes.ReplaceAllString(string(e.Payload), "$1…")
			s.last[strings.TrimSpace(string(e.EventType)+" "+e.StepID)] = e.EmittedAt[11:19] +
				" " + cmp.Or(payload, "none")
		}
	}
	if rec != out.Record {
		return said
	}
	if p := out.NextTown.Paused; p != nil && rec.Kind == machine.KindPause {
		said = append(said, fmt.Sprintf("paused by %s at %s, drains for %d ms", p.ActorID,
			p.At.Format(time.TimeOnly), p.DrainTimeoutMs))
	}
	if p := out.NextTown.Pending; p != nil {
		line := fmt.Sprintf("applies by %s, attempt %d from %s until %s", p.Binding, p.Attempt,
			p.NotBefore.Format(time.TimeOnly), p.Deadline.Format(time.TimeOnly))
		if p.MayHaveReached {
			line += ", may have arrived"
		}
		if p.StoppedUnreached {
			line += ", unreached"
		}
		said = append(said, line)
	}
	return said
}

// answerText renders the rest of an output.
func (s *scenario) answerText(out *machine.Output) (said []string) {
	switch {
	case out.Answer != nil:
		r := out.Answer.Result
		said = append(said, fmt.Sprintf("answer %s %s", r.Status, r.ReasonCode))
		for _, f := range r.Evaluation.Preconditions.Failures {
			said = append(said, "failed "+string(f.Kind)+": "+f.Detail)
		}
	case out.SignalRefusal != nil:
		said = append(said, fmt.Sprintf("refused %s: %s", out.SignalRefusal.Code, out.SignalRefusal.Message))
	case out.DecidedApproval != nil && out.Record == nil:
		said = append(said, "decided so before")
	}
	return said
}

var hashes = regexp.MustCompile(`([0-9a-f]{8})[0-9a-f]{56}`)

// events names the events of a run. A check is one word: with its verdict, or in brackets if it was
// skipped.
func events(run *runlog.Run) string {
	var names []string
	for i := range run.Events {
		e := &run.Events[i]
		switch {
		case e.StepID == "":
			names = append(names, string(e.EventType))
		case e.EventType == runevents.StepSkipped:
			names = append(names, "["+e.StepID+"]")
		case e.EventType == runevents.StepStarted && e.StepID != machine.StepApply:
		case e.StepID == machine.StepApply:
			names = append(names, fmt.Sprint(e.EventType, " ", e.LogicalAttemptID))
		default:
			names = append(names, e.StepID)
		}
	}
	return strings.Join(names, ", ")
}

func (s *scenario) id() string {
	s.ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.ids)
}

func (s *scenario) run(planID, version string) runevents.Identity {
	return runevents.Identity{RunID: s.id(), TenantID: "default", ProjectID: "main",
		EnvironmentID: "local", PlanID: planID, PlanVersion: version}
}

// propose returns a new handoff: its name, the kind of its proposal, its argument, and options.
func (s *scenario) propose(words []string) *handoff.Handoff {
	kinds := map[string]handoff.ProposalType{"advance": handoff.AdvanceProject,
		"talk": handoff.TalkToTownsfolk, "salvage": handoff.PlanSalvage,
		"accept": handoff.AcceptMission, "complete": handoff.CompleteMission,
		"fail": handoff.FailMission}
	p, from := handoff.Proposal{
		Type: kinds[words[1]], ActorID: "mayor-1", TownID: "town-threatened", Priority: 0.8,
		Reason: "Threat level 70% demands it.", ReasonTags: []string{"high_threat"},
	}, s.town.State
	p.Args = map[string]string{p.Type.ArgumentName(): words[2]}
	key := ""
	for i, word := range words[3:] {
		switch word {
		case "of":
			key = s.handoffs[words[3+i+1]].IdempotencyKey
		case "old":
			from = s.before
		case "if":
			p.Preconditions = []handoff.Precondition{
				{Kind: handoff.ProjectExists, TargetID: words[3+i+1]}}
		}
	}
	if !from.Exists() {
		from = towntest.Threatened()
	}
	p.SnapshotHash, p.DecisionEpoch = from.Hash, from.Epoch()
	h, err := handoff.New(p)
	require.NoError(s.t, err)
	if key != "" {
		h.IdempotencyKey = key
	}
	return h
}

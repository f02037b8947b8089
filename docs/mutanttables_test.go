package docs_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// mutant is a text of a file that is replaced by another one.
type mutant struct{ file, from, to string }

// source returns the file with the mutant's change.
func (m *mutant) source(t *testing.T) string {
	t.Helper()
	source := read(t, filepath.Join("..", m.file))
	assert.Equal(t, 1, strings.Count(source, m.from), "%s: a mutant changes %q, which must be there once", m.file, m.from)
	return strings.Replace(source, m.from, m.to, 1)
}

// Each mutant can be made of the code as it is now; TestMutants makes them.
func TestMutantTables(t *testing.T) {
	t.Parallel()
	for i := range chosen {
		chosen[i].source(t)
	}
	for i := range transitions {
		transitions[i].source(t)
		assert.Regexp(t, quoted, transitions[i].proof)
	}
}

// chosen are mutants of rows whose code does more than the row says, or has none that is broken by
// itself, by how the obligation begins.
var chosen = []struct {
	row string
	mutant
}{
	{"emittedAt is when what an event tells", mutant{"worldengine/internal/core/runlog/producer.go",
		"at := e.At",
		"at := time.Time{}"}},
	{"A run that is queued for more than 100 ms", mutant{"worldengine/internal/engine/waiting.go",
		"const unrecordedTimeout = 100 * time.Millisecond",
		"const unrecordedTimeout = 2 * time.Second"}},
	{"RunApproved makes a run APPROVED", mutant{"worldengine/internal/core/approval/list.go",
		"return a.HandoffID == handoffID && a.HandoffHash == handoffHash",
		"return a.HandoffID == handoffID || handoffHash == \"\""}},
	{"It should be answered duplicate", mutant{"worldengine/internal/core/apply/reasons.go",
		"return handoff.ReasonCode(reason) == ReasonGameUnavailable",
		"return handoff.ReasonCode(reason) == \"\""}},
	{"2: it MUST return at least the existing", mutant{"worldengine/internal/core/runlog/state.go",
		"s.keys[w.IdempotencyKey]; ok {",
		"s.keys[w.IdempotencyKey]; ok && false {"}},
	{"On a duplicate key the append authority", mutant{"worldengine/internal/core/runlog/state.go",
		"PersistedAt: r.PersistedAt, Idemp",
		"Idemp"}},
	{"It MUST mark the operation as idempotent", mutant{"worldengine/internal/core/runlog/state.go",
		"Idempotent: true,",
		"Idempotent: false,"}},
	{"A collision MUST be rejected or answered", mutant{"worldengine/internal/core/runlog/state.go",
		"s.keys[w.IdempotencyKey]; ok {",
		"s.keys[w.IdempotencyKey]; ok && false {"}},
	{"An operator MAY have it validate", mutant{"worldengine/internal/engine/parts.go",
		"Transitions: c.Runs.ValidateTransitions",
		"Transitions: false"}},
	{"An alert MUST have the ids of the run", mutant{"runevents/transition.go",
		"a.PriorState, a.AttemptedState = v.Prior, v.Next",
		"_ = a"}},
	{"engineAttemptId MUST be present", mutant{"schemas/run-event-write.v2.schema.json",
		"\"engineAttemptId\", ",
		""}},
	{"2: they MUST advance the watermark", mutant{"runevents/project.go",
		"r.LastEventSeq = e.RunSeq",
		"r.LastEventSeq++"}},
	{"The append authority SHOULD give causal", mutant{"worldengine/internal/core/runlog/state.go",
		"plan.Run.FirstSeq + int64(",
		"plan.Run.FirstSeq - int64("}},
	{"logicalAttemptId of a step counts up ONLY", mutant{"worldengine/internal/core/apply/pending.go",
		"n.Attempt++",
		"n.Attempt += 2"}},
	{"4: a projector runs in every server", mutant{"worldengine/internal/engine/background.go",
		"&& b.projects {",
		"&& false {"}},
	{"Overload is answered: REJECT", mutant{"worldengine/internal/serve/service/admit.go",
		"msg.Header[wire.RetryAfterHeader] = []string{strconv.Itoa(i * retryAfterStep)}",
		"delete(msg.Header, wire.RetryAfterHeader)\n_ = strconv.Itoa(i)"}},
	{"They MUST NOT assume that delivery", mutant{"runevents/project.go",
		"if e.RunSeq <= r.LastEventSeq {",
		"if false {"}},
	{"3 and 5: the town is PAUSED at once", mutant{"worldengine/internal/engine/signals.go",
		"applying > 0 && by.Draining",
		"applying < 0 && by.Draining"}},
	{"7: what to do with a task that ends late", mutant{"worldengine/internal/core/machine/applying.go",
		"func (e *EndAttempt) effect(s *step) (Output, error) {",
		"func (e *EndAttempt) effect(s *step) (Output, error) {\n\tif true {\n\t\treturn Output{}, nil\n\t}"}},
	{"1: an unknown eventType MUST NOT fail", mutant{"runevents/project.go",
		"if !e.EventType.known() {",
		"if false {"}},
	{"2: unknown members MUST be ignored", mutant{"runevents/event.go",
		"json:\"runSeq\"`      // strictly",
		"json:\"run_seq\"`      // strictly"}},
	{"3: new values of enumerations", mutant{"runevents/snapshot.go",
		"Status RunStatus `json:\"status\"`",
		"Status RunStatus `json:\"-\"`"}},
	{"2: engineRunRef MUST be the payload's", mutant{"runevents/project.go",
		"r.EngineRunRef = decoded[string](d.EngineRunRef)",
		"r.EngineRunRef = \"\""}},
	{"3: startedAt MUST be the payload's", mutant{"runevents/project.go",
		"r.StartedAt = schemas.UTC(at)",
		"_ = schemas.UTC(at)"}},
	{"4: lastEventSeq MUST be the event's", mutant{"runevents/project.go",
		"r.LastEventSeq = e.RunSeq",
		"r.LastEventSeq++"}},
	{"executionRequirements has the preconditions", mutant{"handoff/handoff.go",
		"text(requirements, \"expectedSnapshotHash\")",
		"\"x\" + text(requirements, \"expectedSnapshotHash\")"}},
}

// transitions are mutants of the transitions of a town that are not stored, with the tests that find them.
var transitions = []struct {
	name string
	mutant
	proof string
}{
	{"adopt a command", mutant{"worldengine/internal/engine/game/execution.go",
		"return d.newExecution(townID, current, unclaimed)",
		"return d.newExecution(townID, current, scheduled)"},
		"`worldengine/internal/engine/game.TestDispatcher_TakesConsoleOver`"},
	{"adopt after a lost race", mutant{"worldengine/internal/engine/game/dispatcher.go",
		"if err := x.concludeFromLog(ctx); err != nil {",
		"if err := error(nil); err != nil {"},
		"`worldengine/internal/engine/game.TestDispatcher_EndedElsewhere`"},
	{"adopt a command that was left", mutant{"worldengine/internal/engine/game/dispatcher.go",
		"x.due = time.Now().Add(d.config.Retry.AdoptInterval())",
		"x.due = time.Now()"},
		"`worldengine/internal/engine/game.TestDispatcher_AbandonedCommand`"},
	{"note a cancellation", mutant{"worldengine/internal/engine/game/cancel.go",
		"x.cancels.deferred = append(x.cancels.deferred, c)",
		"c.done(nil)"},
		"`worldengine/internal/engine/game.TestDispatcher_CancelCallerLeft`"},
	{"forget a cancellation", mutant{"worldengine/internal/engine/game/cancel.go",
		"case c.caller.Err() != nil:",
		"case false:"},
		"`worldengine/internal/engine/game.TestDispatcher_CancelCallerLeft`"},
	{"resend", mutant{"worldengine/internal/core/apply/pluginattempt.go",
		"return p.waitFor(now, p.resend)",
		"return p.waitFor(now, time.Hour)"},
		"`worldengine/internal/engine.TestStories`"},
	{"pause while asked", mutant{"worldengine/internal/engine/game/next.go",
		"waiting.EndOfPause && !f.mayBeWorking:",
		"waiting.EndOfPause:"},
		"`worldengine/internal/engine/game.TestDispatcher_AskedInPause`"},
	{"stop the deadline in a pause", mutant{"worldengine/internal/engine/game/town.go",
		"x.game.prolong(now.Sub(x.wait.since))",
		"_ = now"},
		"`worldengine/internal/engine/game.TestDispatcher_AskedInPause`"},
	{"stop", mutant{"worldengine/internal/engine/game/next.go",
		"case f.isStopping && f.request != inFlight:",
		"case false:"},
		"`worldengine/internal/engine/game.TestDispatcher_Rests`, `worldengine/internal/engine/game.TestDispatcher_Stop`"},
	{"deliver with the decision", mutant{"worldengine/internal/engine/signals.go",
		"case submit && out.Decided",
		"case false && out.Decided"},
		"`worldengine/internal/engine.TestDecide_PersonLeaves`"},
	{"close a run before it is judged", mutant{"worldengine/internal/core/machine/handoff.go",
		"out.RunRecordBefore = first",
		"_ = first"},
		"`worldengine/internal/core/machine.TestStep_Oracle`, `worldengine/internal/engine.TestStories`"},
	{"reopen a run", mutant{"worldengine/internal/core/machine/waiting.go",
		"if s.tail.Closed == e.Closing {",
		"if s.tail.Closed || !e.Closing {"},
		"`worldengine/internal/core/machine.TestStep_Oracle`, `worldengine/internal/core/machine.TestScenarios`"},
}

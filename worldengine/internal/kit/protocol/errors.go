package protocol

import (
	"slices"
	"time"

	"worldengine/worldengine/wire"
)

// Pauses that a client is asked to make before it asks again.
const (
	ShortRetryDelay = 50 * time.Millisecond
	ApplyRetryDelay = 250 * time.Millisecond // a game's answer is a few ticks away
	LongRetryDelay  = time.Second
	PauseRetryDelay = 5 * time.Second
	// RepairRetryDelay is the pause if an operator has to act.
	RepairRetryDelay = 5 * time.Second
)

// ErrorSpec declares a code. The service makes error replies from it, and worldengine/internal/gen the
// table of docs/contracts.md.
type ErrorSpec struct {
	Code   wire.Code
	Status int // the header Nats-Service-Error-Code
	// Verbs can answer with the code; nil for every verb.
	Verbs []wire.Verb
	// RetryAfter is the header Retry-After-Ms. If another try does not help, it is 0, and the reply
	// has no such header.
	RetryAfter time.Duration
	// Text is the message of the reply. If it is empty, the reply has the error's own text: the
	// client caused the error, and the text names the fix.
	Text string
	// Routine is set if the server does not log the error, since it is no trouble of the server
	// although its status is 5xx.
	Routine bool
	// WaitReason is set if the code says why a handoff waits: for the end of a pause, or for a game. Clients send the
	// handoff again, report the code to their caller meanwhile, and return it if their time is over.
	WaitReason bool
	// When is the condition, and the remedy if there is one, for the docs.
	When string
}

// Errors returns the declarations of all codes. The caller must not change them.
func Errors() []ErrorSpec { return errorSpecs }

// LookupError returns the declaration of a code; nil if there is none.
func LookupError(c wire.Code) *ErrorSpec {
	for i := range errorSpecs {
		if errorSpecs[i].Code == c {
			return &errorSpecs[i]
		}
	}
	return nil
}

// May reports whether a verb can answer with the code.
func (s *ErrorSpec) May(verb wire.Verb) bool { return s.Verbs == nil || slices.Contains(s.Verbs, verb) }

// Groups of verbs that have codes in common.
var (
	// ofTown are the verbs about one town.
	ofTown = []wire.Verb{wire.TownGet, wire.TownHistory, wire.MemoryGet, wire.TownPut, wire.TownPatch, wire.TownRemove, wire.ControlPause, wire.ControlResume,
		wire.ControlGet, wire.WorldSamples, wire.RunAppend, wire.ApprovalDecide}
	// waiting are the verbs whose requests wait for their turn in a town.
	waiting = []wire.Verb{wire.Handoff, wire.TownPut, wire.TownPatch, wire.TownRemove, wire.RunRetry}
	// storing are the verbs that store a record.
	storing = []wire.Verb{wire.Handoff, wire.TownPut, wire.TownPatch, wire.TownRemove, wire.RunAppend, wire.RunCancel, wire.RunRetry, wire.ControlPause,
		wire.ControlResume, wire.ApprovalDecide}
)

var errorSpecs = []ErrorSpec{
	{Code: wire.CodeInvalidJSON, Status: 400, When: "the payload is not one strict JSON value"},
	{Code: wire.CodeSchemaValidation, Status: 400,
		When: "the payload breaks the verb's schema; `details` point into it"},
	{Code: wire.CodePayloadTooLarge, Status: 413,
		When: "the payload is larger than [the verb takes](overload.md#the-bounds)"},
	{Code: wire.CodeRecordTooLarge, Status: 413, Verbs: storing,
		When: "the record to store exceeds NATS's `max_payload`: make the state smaller, or the limit " +
			"larger"},
	{Code: wire.CodeHeadersUnreadable, Status: 400,
		When: "the header block cannot be decoded to its last byte, has a name that is not printable " +
			"ASCII without spaces or, with access control, could hide [who sent " +
			"it](access.md#who-made-a-request)"},
	{Code: wire.CodeUnknownRevision, Status: 400, Verbs: []wire.Verb{wire.Handoff, wire.ResultGet},
		When: "`Execution-Result-Revision` is neither 0 nor 1"},
	{Code: wire.CodeInvalidCursor, Status: 400, Verbs: []wire.Verb{wire.EventList},
		When: "`event.list`: `after` is no decimal number, or beyond the end of the log: begin again, " +
			"without `after` or with `\"0\"`"},
	{Code: wire.CodeForbidden, Status: 403,
		When: "the user may not act on the town, read it, or send the verb ([access.md](access.md))"},
	{Code: wire.CodeActorNotAllowed, Status: 403, Verbs: []wire.Verb{wire.Handoff},
		When: "the user may not speak for the actor"},
	{Code: wire.CodeRunOwned, Status: 403, Verbs: []wire.Verb{wire.RunAppend},
		When: "`run.append`: an event, or its run's plan, [is the engine's](#runs-that-take-longer)"},
	{Code: wire.CodeRunEnded, Status: 409, Verbs: []wire.Verb{wire.RunAppend},
		When: "`run.append`: the engine has ended the run"},
	{Code: wire.CodeRunFull, Status: 409, Verbs: []wire.Verb{wire.RunAppend},
		When: "`run.append`: the log would discard the run's first events to store more of them " +
			"(`--history-per-town`): end the run, and go on in another one"},
	{Code: wire.CodeUnknownTown, Status: 404, Verbs: ofTown, When: "there is no such town"},
	{Code: wire.CodeUnknownResult, Status: 404, Verbs: []wire.Verb{wire.ResultGet},
		When: "no handoff was accepted with the key, or its commit is no longer kept, or damaged"},
	{Code: wire.CodeUnknownRun, Status: 404, Verbs: []wire.Verb{wire.RunGet, wire.RunEvents, wire.RunRetry},
		When: "the log has no events of the run, or not its first ones (of `run.events`: the first " +
			"ones above `afterSeq`)"},
	{Code: wire.CodeUnknownAlert, Status: 404, Verbs: []wire.Verb{wire.AlertAck},
		Text: "the stream of alerts has no alert with this sequence, or not any more; " +
			"alert.list has the sequences",
		When: "there is no alert with this `seq`, or not any more"},
	{Code: wire.CodeRevisionGone, Status: 404, Verbs: []wire.Verb{wire.TownGet},
		When: "`town.get`: the log does not have the town's `revision`, or not any more; " +
			"`town.history` lists the kept ones"},
	{Code: wire.CodeUnknownWorld, Status: 404, Verbs: []wire.Verb{wire.WorldsRemove},
		When: "there is no such world: `worlds.list` has the worlds, and `worlds.create` makes one"},
	{Code: wire.CodeWorldExists, Status: 409, Verbs: []wire.Verb{wire.WorldsCreate},
		When: "`worlds.create`: there is a world of that name: use it, or choose another name"},
	{Code: wire.CodeWorldInUse, Status: 409, Verbs: []wire.Verb{wire.WorldsRemove},
		When: "`worlds.remove` without `force`: requests of the world are in hand, or plugins of it are " +
			"connected: stop them, or send `force`"},
	{Code: wire.CodeWorldNotServed, Status: 503, Verbs: []wire.Verb{wire.WorldsCreate, wire.WorldsRemove}, RetryAfter: RepairRetryDelay, Routine: true,
		When: "no server serves the world; the message says why, and what to do"},
	{Code: wire.CodeTownExists, Status: 409, Verbs: []wire.Verb{wire.TownPut},
		When: "`town.put` without `expectedSnapshotHash`: the town is there"},
	{Code: wire.CodeSnapshotConflict, Status: 409, Verbs: []wire.Verb{wire.TownPut, wire.TownPatch},
		When: "`town.put`, `town.patch`: the town is in another state than `expectedSnapshotHash` " +
			"names: get it again"},
	{Code: wire.CodeEpochRegression, Status: 409, Verbs: []wire.Verb{wire.TownPut, wire.TownPatch},
		When: "`town.put`, `town.patch`: the town would go back to an earlier epoch"},
	{Code: wire.CodeInvalidTransition, Status: 409, Verbs: []wire.Verb{wire.RunAppend},
		When: "`run.append` with `--validate-transitions`: the run or step cannot go there from " +
			"its status"},
	{Code: wire.CodeRunCancelled, Status: 409, Verbs: []wire.Verb{wire.Handoff, wire.RunRetry},
		When: "the handoff's run was cancelled, as a rule by an operator: nothing was judged or, as the " +
			"message says, its command is not asked for any more. The key is free"},
	{Code: wire.CodeAlreadyPaused, Status: 409, Verbs: []wire.Verb{wire.ControlPause},
		When: "the town or world is paused already"},
	{Code: wire.CodeNotPaused, Status: 409, Verbs: []wire.Verb{wire.ControlResume},
		When: "the town or world is not paused"},
	{Code: wire.CodeUnknownApproval, Status: 404, Verbs: []wire.Verb{wire.ApprovalDecide},
		When: "`approval.decide`: no such handoff waits in the town, or did lately"},
	{Code: wire.CodeAlreadyDecided, Status: 409, Verbs: []wire.Verb{wire.ApprovalDecide},
		When: "`approval.decide`: another decision was first; the message says whose and which"},
	{Code: wire.CodeApprovalDiffers, Status: 409, Verbs: []wire.Verb{wire.ApprovalDecide},
		When: "`approval.decide`: the town asked about another handoff under this `handoffId`: list the " +
			"approvals again"},
	{Code: wire.CodeApprovalAmbiguous, Status: 409, Verbs: []wire.Verb{wire.ApprovalDecide},
		When: "`approval.decide`: several handoffs with this `handoffId` wait: send `handoffHash`"},
	{Code: wire.CodeApprovalStale, Status: 409, Verbs: []wire.Verb{wire.ApprovalDecide},
		When: "`approval.decide`: the town has changed since, or the handoff has waited too long"},
	{Code: wire.CodeRunNotWaiting, Status: 409, Verbs: []wire.Verb{wire.RunCancel},
		When: "`run.cancel`: the run neither waits nor has a pending command, or does not exist"},
	{Code: wire.CodeRunInHand, Status: 409, Verbs: []wire.Verb{wire.RunCancel},
		When: "`run.cancel`: the game may have the command, also from before a restart: look there. " +
			"`force` cancels it all the same, and ends a retry `failed`, in doubt"},
	{Code: wire.CodeRunNotRetryable, Status: 409, Verbs: []wire.Verb{wire.RunRetry},
		When: "`run.retry`: the run did not fail with `PLUGIN_UNAVAILABLE`, or the log no longer keeps " +
			"its end; the message has the fix"},
	{Code: wire.CodeRunInDoubt, Status: 409, Verbs: []wire.Verb{wire.RunRetry},
		When: "`run.retry`: the command of the failed run may have been applied: look at the game"},
	{Code: wire.CodeRunRetried, Status: 409, Verbs: []wire.Verb{wire.RunRetry},
		When: "`run.retry`: another retry was first; the message names its run"},
	{Code: wire.CodeOverloaded, Status: 429, RetryAfter: ShortRetryDelay,
		Text: "too many requests are waiting for this town or in all, so nothing was judged; " +
			"ask again after the pause in Retry-After-Ms",
		When: "no [slot](overload.md) is free, for the town or in all"},
	{Code: wire.CodeRunDamaged, Status: 500, Verbs: []wire.Verb{wire.RunGet, wire.RunList, wire.RunEvents, wire.RunAppend, wire.RunRetry},
		Text: "the stored events of the run cannot be read; an operator has to look at the log: " +
			"handoffctl fsck says where it is damaged",
		When: "the run's stored events cannot be read ([damage](evidence/damage.md)); `result.get` " +
			"has the result, unless the damage is in the same commit"},
	{Code: wire.CodeInternal, Status: 500,
		Text: "the server has a defect and could not finish the request; its log says more",
		When: "the server has a defect; its log says more"},
	{Code: wire.CodeInProgress, Status: 503, Verbs: []wire.Verb{wire.Handoff, wire.RunRetry},
		RetryAfter: ApplyRetryDelay, Routine: true,
		When: "the handoff is accepted; its command is being applied, or waits for a game that is " +
			"away. There will be a result, unless an operator cancels the run. Or the run has ended, and " +
			"the log no longer keeps how: the answer to the same bytes shows it. Without `Run-Id` another " +
			"handoff with the same key is being applied, and this one was not judged"},
	{Code: wire.CodeHistoryFull, Status: 503, Verbs: storing,
		RetryAfter: PauseRetryDelay, Routine: true, // has an alert
		When: "so many handoffs have failed in this state of the town that [its history](operators.md" +
			"#a-full-history) has no room for one more: nothing was judged or stored, and the key is " +
			"free. The town goes on when its epoch moves"},
	{Code: wire.CodeTownPaused, Status: 503, Verbs: waiting, RetryAfter: PauseRetryDelay, Routine: true, WaitReason: true,
		When: "the town is paused. The handoff waited for `--pause-wait` (2 s): it was not judged, its " +
			"run is cancelled, and its key free. Or it was accepted before: its command is held back, " +
			"and there will be a result"},
	{Code: wire.CodeWorldPaused, Status: 503, Verbs: waiting, RetryAfter: PauseRetryDelay, Routine: true, WaitReason: true,
		When: "the same, of the world"},
	{Code: wire.CodePluginAbsent, Status: 503, Verbs: waiting, RetryAfter: PauseRetryDelay, Routine: true, WaitReason: true,
		When: "the town's [game is away](operators.md#a-game-that-is-away), and did not come within " +
			"fifteen times `--pause-wait` (30 s). As the message says, the handoff is accepted and " +
			"goes on waiting; or the request waited behind such a handoff and was not judged, and the " +
			"run of a handoff is cancelled, and its key free"},
	{Code: wire.CodeRunEnding, Status: 503, Verbs: []wire.Verb{wire.RunAppend}, RetryAfter: ShortRetryDelay,
		Text: "the engine is about to end the run, so the events were not stored; " +
			"send the same request again: the answer is RUN_ENDED then, unless the run goes on",
		When: "`run.append`: the engine is about to end the run"},
	{Code: wire.CodeIndexBehind, Status: 503, RetryAfter: ShortRetryDelay,
		Text: "the server's index has not followed the log yet, so it is not known whether the " +
			"idempotency key was accepted before, or if there is such a run; nothing was judged; " +
			"ask again",
		When: "the index has not followed the log yet, so keys and runs are not known; `handoffctl " +
			"status` shows the progress of an index that is built"},
	{Code: wire.CodeContended, Status: 503, Verbs: storing, RetryAfter: ShortRetryDelay,
		Text: "other servers kept changing the town, so nothing was stored; ask again",
		When: "other servers kept changing the town; nothing was stored"},
	{Code: wire.CodeStopping, Status: 503, RetryAfter: LongRetryDelay,
		Text: "this server is stopping and did not take the request; " +
			"ask again: another server answers, or this one after its restart",
		When: "the server is stopping: another one answers, or this one after its restart"},
	{Code: wire.CodeTownDamaged, Status: 503, RetryAfter: RepairRetryDelay, Routine: true, // has an alert
		Text: "the log lacks a record of the town, or cannot read its state, so nothing was judged " +
			"or changed; an operator has to repair the town: handoffctl fsck says where it is damaged",
		When: "the town's stored state cannot be read, or one of its records is missing, so nothing " +
			"was judged: an operator [repairs it](repair.md)"},
	{Code: wire.CodeStorageFull, Status: 503, RetryAfter: LongRetryDelay, Routine: true, // has an alert
		Text: "the disk of the server is full or refuses to be written to, so the request was " +
			"not carried out, unless it was being stored when that began; send the same bytes " +
			"again when an operator has made room",
		When: "the disk [is full](operators.md#a-full-disk) or refuses writes: nothing was carried " +
			"out, unless it was being stored when that began"},
	{Code: wire.CodeLogUnavailable, Status: 503, RetryAfter: LongRetryDelay,
		Text: "NATS did not answer in time, so the request may have been carried out " +
			"or not; send the same bytes again to learn which",
		When: "NATS did not answer in time, and the request may have been carried out: the answer to " +
			"the same bytes shows it. Or the log has lost messages, and nothing is committed until an operator " +
			"acts on the alert `LOG_LOST`"},
}

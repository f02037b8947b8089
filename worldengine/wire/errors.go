package wire

import "time"

// Code is the machine code of an error reply. A client decides by it; the message is for people.
type Code string

// The codes of error replies. Errors has their meanings.
const (
	CodeInvalidJSON       Code = "INVALID_JSON"
	CodeSchemaValidation  Code = "SCHEMA_VALIDATION_FAILED"
	CodePayloadTooLarge   Code = "PAYLOAD_TOO_LARGE"
	CodeRecordTooLarge    Code = "RECORD_TOO_LARGE"
	CodeHeadersUnreadable Code = "HEADERS_UNREADABLE"
	CodeUnknownRevision   Code = "UNKNOWN_REVISION"
	CodeInvalidCursor     Code = "INVALID_CURSOR"
	CodeForbidden         Code = "FORBIDDEN"
	CodeActorNotAllowed   Code = "ACTOR_NOT_ALLOWED"
	CodeRunOwned          Code = "RUN_OWNED"
	CodeRunEnded          Code = "RUN_ENDED"
	CodeUnknownTown       Code = "UNKNOWN_TOWN"
	CodeRevisionGone      Code = "REVISION_GONE"
	CodeUnknownResult     Code = "UNKNOWN_RESULT"
	CodeUnknownRun        Code = "UNKNOWN_RUN"
	CodeUnknownAlert      Code = "UNKNOWN_ALERT"
	CodeUnknownApproval   Code = "UNKNOWN_APPROVAL"
	CodeTownExists        Code = "TOWN_EXISTS"
	CodeSnapshotConflict  Code = "SNAPSHOT_CONFLICT"
	CodeEpochRegression   Code = "EPOCH_REGRESSION"
	CodeInvalidTransition Code = "INVALID_TRANSITION"
	CodeRunCancelled      Code = "RUN_CANCELLED"
	CodeAlreadyPaused     Code = "ALREADY_PAUSED"
	CodeNotPaused         Code = "NOT_PAUSED"
	CodeRunNotWaiting     Code = "RUN_NOT_WAITING"
	CodeRunInHand         Code = "RUN_IN_HAND"
	CodeRunNotRetryable   Code = "RUN_NOT_RETRYABLE"
	CodeRunInDoubt        Code = "RUN_IN_DOUBT"
	CodeRunRetried        Code = "RUN_RETRIED"
	CodeAlreadyDecided    Code = "ALREADY_DECIDED"
	CodeApprovalStale     Code = "APPROVAL_STALE"
	CodeApprovalDiffers   Code = "APPROVAL_DIFFERS"
	CodeApprovalAmbiguous Code = "APPROVAL_AMBIGUOUS"
	CodeOverloaded        Code = "OVERLOADED"
	CodeTownDamaged       Code = "TOWN_DAMAGED"
	CodeRunDamaged        Code = "RUN_DAMAGED"
	CodeInternal          Code = "INTERNAL"
	CodeInProgress        Code = "EXECUTION_IN_PROGRESS"
	CodeTownPaused        Code = "TOWN_PAUSED"
	CodeWorldPaused       Code = "WORLD_PAUSED"
	CodePluginAbsent      Code = "PLUGIN_ABSENT"
	CodeRunEnding         Code = "RUN_ENDING"
	CodeIndexBehind       Code = "INDEX_BEHIND"
	CodeContended         Code = "CONTENDED"
	CodeStopping          Code = "STOPPING"
	CodeStorageFull       Code = "STORAGE_FULL"
	CodeLogUnavailable    Code = "LOG_UNAVAILABLE"
)

// Pauses that a client is asked to make before it asks again.
const (
	RetrySoon    = 50 * time.Millisecond
	RetryApplied = 250 * time.Millisecond // a game's answer is a few ticks away
	RetryLater   = time.Second
	RetryPaused  = 5 * time.Second
)

// ErrorSpec declares a code. The service answers by it, and cmd/internal/gen writes the table of
// docs/contracts.md.
type ErrorSpec struct {
	Code   Code
	Status int // the header Nats-Service-Error-Code
	// RetryAfter is the header Retry-After-Ms; 0, and no header, if another try does not help.
	RetryAfter time.Duration
	// Text is the message of the reply. If it is empty, the reply has the error's own text: the
	// client caused the error, and the text names the fix.
	Text string
	// Routine errors are no trouble of the server although their status is 5xx: they are not
	// logged.
	Routine bool
	// When is the condition, for the docs; Text by default. Again is whether to ask again: by
	// default yes if there is a RetryAfter.
	When, Again string
}

// Errors returns the declarations of all codes. The caller must not change them.
func Errors() []ErrorSpec { return errorSpecs }

// Spec returns the declaration of a code; nil if there is none.
func (c Code) Spec() *ErrorSpec {
	for i := range errorSpecs {
		if errorSpecs[i].Code == c {
			return &errorSpecs[i]
		}
	}
	return nil
}

var errorSpecs = []ErrorSpec{
	{Code: CodeInvalidJSON, Status: 400, When: "the payload is not one strict JSON value"},
	{Code: CodeSchemaValidation, Status: 400,
		When: "the payload breaks the schema of the verb; `details` point into it"},
	{Code: CodePayloadTooLarge, Status: 413,
		When: "the payload is larger than the verb takes"},
	{Code: CodeRecordTooLarge, Status: 413,
		When: "the record to store exceeds the largest message that NATS takes (`max_payload`); " +
			"nothing is stored",
		Again: "no; a smaller state, or an operator raises the limit"},
	{Code: CodeHeadersUnreadable, Status: 400,
		When: "the header block of the request cannot be decoded or, with access control, could " +
			"hide who sent it ([access.md](access.md#who-made-a-request)); nothing was read or judged",
		Again: "no; with headers as NATS has them"},
	{Code: CodeUnknownRevision, Status: 400,
		When: "`Execution-Result-Revision` is neither 0 nor 1; nothing was judged"},
	{Code: CodeInvalidCursor, Status: 400,
		When: "of `event.list`: `after` is no decimal number, or beyond the end of the log, which " +
			"may have lost its end or be another one",
		Again: "no: begin again without `after`, or with `\"0\"`"},
	{Code: CodeForbidden, Status: 403,
		When: "the user of the connection may not act on the town, not read it, or not ask the " +
			"verb ([access.md](access.md)); nothing was judged"},
	{Code: CodeActorNotAllowed, Status: 403,
		When: "the user may not speak for the actor; nothing was judged"},
	{Code: CodeRunOwned, Status: 403,
		When: "of `run.append`: an event, or the plan of its run, [is the engine's " +
			"alone](#runs-that-take-longer); nothing is stored"},
	{Code: CodeRunEnded, Status: 409,
		When: "of `run.append`: the engine has ended the run, which takes no more events; nothing " +
			"is stored"},
	{Code: CodeUnknownTown, Status: 404, When: "there is no such town"},
	{Code: CodeUnknownResult, Status: 404,
		When: "no handoff was accepted with the key, or the log keeps its commit no more"},
	{Code: CodeUnknownRun, Status: 404,
		When: "no events of the run are kept, or not its first ones, or of `run.events` not the " +
			"first ones above `afterSeq`"},
	{Code: CodeUnknownAlert, Status: 404,
		Text: "the stream of alerts has no alert with this sequence, or not any more; " +
			"alert.list has the sequences"},
	{Code: CodeRevisionGone, Status: 404,
		When: "of `town.get` with `revision`: the log has no such revision of the town, or does " +
			"not keep it any more",
		Again: "no: `town.history` lists those that are kept"},
	{Code: CodeTownExists, Status: 409,
		When:  "of `town.put` without `expectedSnapshotHash`: the town is there",
		Again: "no: look at it first"},
	{Code: CodeSnapshotConflict, Status: 409,
		When: "of `town.put` and `town.patch`: the town is not in the state that " +
			"`expectedSnapshotHash` names",
		Again: "no: look at it first"},
	{Code: CodeEpochRegression, Status: 409,
		When:  "of `town.put` and `town.patch`: the town would go back to an earlier epoch",
		Again: "no: look at it first"},
	{Code: CodeInvalidTransition, Status: 409,
		When: "of `run.append`, with `--validate-transitions`: the run or step cannot go there " +
			"from its status; nothing is stored"},
	{Code: CodeRunCancelled, Status: 409,
		When: "the run of the handoff was cancelled while it waited, by an operator as a rule; " +
			"nothing was judged, or its command is not asked for any more, as its message says; " +
			"the header `Run-Id` names the run",
		Again: "the key is free"},
	{Code: CodeAlreadyPaused, Status: 409, When: "the town or the world is paused already"},
	{Code: CodeNotPaused, Status: 409, When: "the town or the world is not paused"},
	{Code: CodeUnknownApproval, Status: 404,
		When: "of `approval.decide`: no handoff with the id waits for a person's approval in the " +
			"town, or did within the day before (unless the town has asked for another one since)"},
	{Code: CodeAlreadyDecided, Status: 409,
		When: "of `approval.decide`: another decision was first; its message says whose and which"},
	{Code: CodeApprovalDiffers, Status: 409,
		When: "of `approval.decide`: under the `handoffId` another handoff was asked about than " +
			"the one with the `handoffHash`",
		Again: "no: list the approvals again"},
	{Code: CodeApprovalAmbiguous, Status: 409,
		When:  "of `approval.decide`: several handoffs with the `handoffId` wait in the town",
		Again: "no: send `handoffHash`"},
	{Code: CodeApprovalStale, Status: 409,
		When: "of `approval.decide`: the town has changed since the handoff was made, or it has " +
			"waited for too long"},
	{Code: CodeRunNotWaiting, Status: 409,
		When: "no run with this id waits, and none has a command that is pending: it has ended, " +
			"or there is no such run"},
	{Code: CodeRunInHand, Status: 409,
		When: "of `run.cancel`: a request for the command may have reached the game, also before a " +
			"restart. Nothing was cancelled",
		Again: "no: look at the game; `force` cancels it all the same, and ends a retry `failed`, " +
			"in doubt"},
	{Code: CodeRunNotRetryable, Status: 409,
		When: "of `run.retry`: the run did not fail with `PLUGIN_UNAVAILABLE`, or the log does not " +
			"keep its end any more; the message says how it ended, and the fix"},
	{Code: CodeRunInDoubt, Status: 409,
		When:  "of `run.retry`: the run failed, and its command may have been applied",
		Again: "no: look at the game"},
	{Code: CodeRunRetried, Status: 409,
		When: "of `run.retry`: another retry was first; the message names its run"},
	{Code: CodeOverloaded, Status: 429, RetryAfter: RetrySoon,
		Text: "too many requests are waiting for this town or in all, so nothing was judged; " +
			"ask again after the pause in Retry-After-Ms",
		When: "there is no free slot for the request, for its town or in all; nothing was judged " +
			"([overload.md](overload.md))"},
	{Code: CodeTownDamaged, Status: 500,
		Text: "the stored state of the town cannot be read, so nothing was judged or changed; " +
			"an operator has to repair the town: handoffctl fsck says where it is damaged",
		Again: "no: an operator follows [repair.md](repair.md)"},
	{Code: CodeRunDamaged, Status: 500,
		Text: "the stored events of the run cannot be read; an operator has to look at the log: " +
			"handoffctl fsck says where it is damaged",
		Again: "no: an operator repairs ([evidence](evidence/damage.md)); `result.get` has the result"},
	{Code: CodeInternal, Status: 500,
		Text: "the server has a defect and could not finish the request; its log says more"},
	{Code: CodeInProgress, Status: 503, RetryAfter: RetryApplied, Routine: true,
		When: "the handoff is accepted, and its command is being applied, or waits for a plugin " +
			"that is away; the header `Run-Id` names the run",
		Again: "yes: there will be a result, unless an operator cancels the run"},
	{Code: CodeTownPaused, Status: 503, RetryAfter: RetryPaused, Routine: true,
		When: "the handoff waited for `--pause-wait` (2 s), and the town is paused still; nothing " +
			"was judged, its run is cancelled, and the header `Run-Id` names it; or the handoff was " +
			"accepted before the pause, its command is held back, and its run stays",
		Again: "yes, after the pause: the key is free, or there is a result"},
	{Code: CodeWorldPaused, Status: 503, RetryAfter: RetryPaused, Routine: true,
		When:  "as `TOWN_PAUSED`, of the world",
		Again: "yes, after the pause: the key is free, or there is a result"},
	{Code: CodePluginAbsent, Status: 503, RetryAfter: RetryPaused, Routine: true,
		When: "no plugin is there for the town, and none came within fifteen times `--pause-wait` " +
			"(30 s). The handoff is accepted, its command goes on waiting, and the header `Run-Id` " +
			"names its run; or the request waited behind such a command: nothing was judged or " +
			"stored, and the run of a handoff is cancelled. The message says which ([a game that " +
			"is away](operators.md#a-game-that-is-away))",
		Again: "yes: the key is free, or there will be a result, unless an operator cancels the run"},
	{Code: CodeRunEnding, Status: 503, RetryAfter: RetrySoon,
		Text: "the engine is about to end the run, so the events were not stored; " +
			"send the same request again: the answer is RUN_ENDED then, unless the run goes on",
		When:  "of `run.append`: the engine is about to end the run",
		Again: "yes: the answer is `RUN_ENDED` then, unless the run goes on"},
	{Code: CodeIndexBehind, Status: 503, RetryAfter: RetrySoon,
		Text: "the server's index has not followed the log yet, so it is not known whether the " +
			"idempotency key was accepted before, or if there is such a run; nothing was judged; " +
			"ask again",
		Again: "yes; `handoffctl status` shows the progress of an index that is built"},
	{Code: CodeContended, Status: 503, RetryAfter: RetrySoon,
		Text: "other servers kept changing the town, so nothing was stored; ask again"},
	{Code: CodeStopping, Status: 503, RetryAfter: RetryLater,
		Text: "this server is stopping and did not take the request; " +
			"ask again: another server answers, or this one after its restart"},
	{Code: CodeStorageFull, Status: 503, RetryAfter: RetryLater, Routine: true, // see STORAGE_FAILED
		Text: "the disk of the server is full or refuses to be written to, so the request was " +
			"not carried out, unless it was being stored when that began; send the same bytes " +
			"again when an operator has made room",
		Again: "yes, when there is room ([operators.md](operators.md#a-full-disk))"},
	{Code: CodeLogUnavailable, Status: 503, RetryAfter: RetryLater,
		Text: "NATS did not answer in time, so the request may have been carried out " +
			"or not; send the same bytes again to learn which",
		When: "NATS did not answer in time, and the request may have been carried out or not; or the " +
			"run of a handoff, which the message names, has ended, the log no longer keeps how, and " +
			"another run has stored a result for the key since",
		Again: "yes, with the same bytes: the answer shows whether it was"},
}

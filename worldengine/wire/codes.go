package wire

// Code is the machine code of an error reply. A client decides by it; the message is for people.
type Code string

// The codes of error replies. docs/contracts.md has their statuses, and when to ask again.
const (
	// CodeInvalidJSON: the payload is not one strict JSON value.
	CodeInvalidJSON Code = "INVALID_JSON"
	// CodeSchemaValidation: the payload is not what the schema of the verb says.
	CodeSchemaValidation Code = "SCHEMA_VALIDATION_FAILED"
	// CodePayloadTooLarge: the payload is larger than the verb takes.
	CodePayloadTooLarge Code = "PAYLOAD_TOO_LARGE"
	// CodeRecordTooLarge: the record to store exceeds the largest message that NATS takes.
	CodeRecordTooLarge Code = "RECORD_TOO_LARGE"
	// CodeHeadersUnreadable: the service cannot be certain of the request's headers.
	CodeHeadersUnreadable Code = "HEADERS_UNREADABLE"
	// CodeUnknownRevision: the request asks for a revision of the result that there is not.
	CodeUnknownRevision Code = "UNKNOWN_REVISION"
	// CodeForbidden: the user may not make the request, or not act on or read the town.
	CodeForbidden Code = "FORBIDDEN"
	// CodeActorNotAllowed: the user may not speak for the actor.
	CodeActorNotAllowed Code = "ACTOR_NOT_ALLOWED"
	// CodeUnknownTown: there is no such town.
	CodeUnknownTown Code = "UNKNOWN_TOWN"
	// CodeRevisionGone: the history of the town does not have the revision, or not any more.
	CodeRevisionGone Code = "REVISION_GONE"
	// CodeUnknownResult: no receipt of an accepted handoff with the key is kept.
	CodeUnknownResult Code = "UNKNOWN_RESULT"
	// CodeUnknownRun: the events of the run, or the first of them, are not kept.
	CodeUnknownRun Code = "UNKNOWN_RUN"
	// CodeUnknownAlert: no such alert is kept.
	CodeUnknownAlert Code = "UNKNOWN_ALERT"
	// CodeTownExists: a town.put would create a town that exists.
	CodeTownExists Code = "TOWN_EXISTS"
	// CodeSnapshotConflict: the town's hash is not the expected one.
	CodeSnapshotConflict Code = "SNAPSHOT_CONFLICT"
	// CodeEpochRegression: the change would lower the town's day.
	CodeEpochRegression Code = "EPOCH_REGRESSION"
	// CodeRunOwned: the run is the engine's, and so is the event that was appended.
	CodeRunOwned Code = "RUN_OWNED"
	// CodeInvalidTransition: an appended event cannot follow the events of its run.
	CodeInvalidTransition Code = "INVALID_TRANSITION"
	// CodeAlreadyPaused: a pause of what is paused already.
	CodeAlreadyPaused Code = "ALREADY_PAUSED"
	// CodeNotPaused: the end of a pause that there is not.
	CodeNotPaused Code = "NOT_PAUSED"
	// CodeRunNotWaiting: the run to cancel does not wait.
	CodeRunNotWaiting Code = "RUN_NOT_WAITING"
	// CodeRunInHand: a game may have the command of the run to cancel.
	CodeRunInHand Code = "RUN_IN_HAND"
	// CodeRunNotRetryable: the run to retry did not fail for want of a game, or was not kept.
	CodeRunNotRetryable Code = "RUN_NOT_RETRYABLE"
	// CodeRunInDoubt: the command of the run to retry may have been applied.
	CodeRunInDoubt Code = "RUN_IN_DOUBT"
	// CodeRunRetried: another retry of the run was first.
	CodeRunRetried Code = "RUN_RETRIED"
	// CodeUnknownApproval: no handoff with the id waits for an approval.
	CodeUnknownApproval Code = "UNKNOWN_APPROVAL"
	// CodeAlreadyDecided: another decision about the handoff was first.
	CodeAlreadyDecided Code = "ALREADY_DECIDED"
	// CodeApprovalStale: the handoff has waited for too long, or its town has changed since.
	CodeApprovalStale Code = "APPROVAL_STALE"
	// CodeApprovalDiffers: another handoff waits under the id than the one that was shown.
	CodeApprovalDiffers Code = "APPROVAL_DIFFERS"
	// CodeApprovalAmbiguous: several handoffs with the id wait, and the request does not say which.
	CodeApprovalAmbiguous Code = "APPROVAL_AMBIGUOUS"
	// CodeRunCancelled: an operator cancelled the run.
	CodeRunCancelled Code = "RUN_CANCELLED"
	// CodeTownPaused: the town is paused, and the pause did not end while the handoff waited.
	CodeTownPaused Code = "TOWN_PAUSED"
	// CodeWorldPaused: the world is paused, and the pause did not end while the handoff waited.
	CodeWorldPaused Code = "WORLD_PAUSED"
	// CodePluginAbsent: the town has no plugin, and none came while the request waited.
	CodePluginAbsent Code = "PLUGIN_ABSENT"
	// CodeOverloaded: too many requests wait, or they take too much memory.
	CodeOverloaded Code = "OVERLOADED"
	// CodeTownDamaged: the stored state of the town cannot be read.
	CodeTownDamaged Code = "TOWN_DAMAGED"
	// CodeRunDamaged: the last stored event of the run cannot be read.
	CodeRunDamaged Code = "RUN_DAMAGED"
	// CodeInternal: a defect of the server; its log has it.
	CodeInternal Code = "INTERNAL"
	// CodeInProgress: the handoff is accepted, and its command is being applied.
	CodeInProgress Code = "EXECUTION_IN_PROGRESS"
	// CodeRunEnding: the engine is about to end the run.
	CodeRunEnding Code = "RUN_ENDING"
	// CodeReceiptsBehind: the receipts do not yet say whether the key is free.
	CodeReceiptsBehind Code = "RECEIPTS_BEHIND"
	// CodeEventsBehind: the events of the run are not in their stream yet.
	CodeEventsBehind Code = "EVENTS_BEHIND"
	// CodeContended: other servers kept changing the town.
	CodeContended Code = "CONTENDED"
	// CodeStopping: the server is stopping.
	CodeStopping Code = "STOPPING"
	// CodeStorageFull: the server's disk is full, or refused a write.
	CodeStorageFull Code = "STORAGE_FULL"
	// CodeLogUnavailable: NATS did not answer in time.
	CodeLogUnavailable Code = "LOG_UNAVAILABLE"
)

// Codes returns every code. The caller may change the slice.
func Codes() []Code {
	return []Code{
		CodeInvalidJSON, CodeSchemaValidation, CodePayloadTooLarge, CodeRecordTooLarge,
		CodeHeadersUnreadable, CodeUnknownRevision, CodeForbidden, CodeActorNotAllowed,
		CodeUnknownTown, CodeRevisionGone, CodeUnknownResult, CodeUnknownRun, CodeUnknownAlert,
		CodeTownExists, CodeSnapshotConflict,
		CodeEpochRegression, CodeRunOwned, CodeInvalidTransition, CodeAlreadyPaused, CodeNotPaused,
		CodeRunNotWaiting, CodeRunInHand, CodeRunNotRetryable, CodeRunInDoubt, CodeRunRetried,
		CodeUnknownApproval, CodeAlreadyDecided,
		CodeApprovalStale, CodeApprovalDiffers, CodeApprovalAmbiguous, CodeRunCancelled,
		CodeTownPaused, CodeWorldPaused, CodePluginAbsent, CodeOverloaded, CodeTownDamaged,
		CodeRunDamaged,
		CodeInternal, CodeInProgress, CodeRunEnding, CodeReceiptsBehind, CodeEventsBehind,
		CodeContended, CodeStopping, CodeStorageFull, CodeLogUnavailable,
	}
}

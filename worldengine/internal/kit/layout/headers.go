package layout

// UserHeader names the user who made a request, if the request crosses accounts: JSON with "user",
// "acc" and more. A NATS server writes this header last, after the client's headers.
const UserHeader = "Nats-Request-Info"

// Headers of the log's messages. On a town's message they describe the state after the commit.
const (
	// KindHeader is the kind of the record. On the bus, only appended run events have this header.
	KindHeader = "Kind"
	// TownHeader is the town id, percent-encoded. A message leaves it out if the id is too long.
	TownHeader = "Town-Id"
	// HashHeader is the hash of the town's state.
	HashHeader = "Snapshot-Hash"
	// ActorHeader is who put the state or asked for the run, percent-encoded.
	ActorHeader = "Actor-Id"
	// EpochHeader is the decision epoch of the town's state.
	EpochHeader = "Decision-Epoch"
	// AskedHeader is there if proposals wait for a person's approval in the town.
	AskedHeader = "Approvals-Asked"
	// ApplyHeader is what applies the commands of the town, if that is not the world's default.
	ApplyHeader = "Apply"
	// PendingHeader is "true" while a command is being applied in the town, PausedHeader while the
	// town is paused, and RemovedHeader while it is removed.
	PendingHeader = "Pending"
	PausedHeader  = "Paused"
	RemovedHeader = "Removed"
)

// Headers of the log's messages that the index reads. A message lacks those that do not apply.
const (
	// AtHeader is the persistedAt of the message: RFC 3339, UTC, milliseconds. The append authority
	// sets it, never earlier than in the last message of the town or the run.
	AtHeader = "At"
	// AppendIDHeader is an id that was drawn for the append, by which its writer recognizes it.
	AppendIDHeader = "Append-Id"
	// ArrivedHeader, on a run's first message, is the time when the run's handoff or signal arrived.
	// The first event has the same time as its emittedAt.
	ArrivedHeader = "Arrived"
	// TownTokenHeader is the town token if the subject does not end with it.
	TownTokenHeader = "Town-Token"
	// KeyHeader is the idempotency key of the handoff that the record's result answers.
	KeyHeader = "Key"
	// ResultHeader is the status and the reason code of the record's result.
	ResultHeader = "Result"
	// RunSeqsHeader has the first and the last runSeq of the record's events: "1-10".
	RunSeqsHeader = "Run-Seqs"
	// RunEventTypesHeader has the types of the record's run-level events, in order, with commas.
	RunEventTypesHeader = "Run-Moves" // the name under which it is stored
	// TypeHeader is the origin of the engine's run: the type of a proposal, or a signal.
	TypeHeader = "Type"
	// ClosingHeader is "true" if the record closes the run to all but the engine.
	ClosingHeader = "Closing"
	// GapsHeader, on a repair, has the parts of the town's history that were given up: the
	// sequences before and behind each, "2-5,9-"; without the second, the part ends at the record.
	GapsHeader = "Gaps"
	// InconsistentHeader is "true" if the run became INCONSISTENT with the record.
	InconsistentHeader = "Inconsistent"
)

// Headers of every message that is derived from the log.
const (
	// LogSeqHeader is the stream sequence of the log message that the message was derived from.
	LogSeqHeader = "Log-Seq"
	// LogPartHeader is the number of the message, from 0, among the messages derived from that log
	// message.
	LogPartHeader = "Log-Part"
)

// Headers of a dead letter, beside LogSeqHeader, LogPartHeader and the message's own.
const (
	// DeadLetterReasonHeader is why the bus gave the message up.
	DeadLetterReasonHeader = "Dead-Letter-Reason"
	// OriginalSubjectHeader is the subject that the message should have had on the bus or, if the
	// log message cannot be read, the subject of the log message.
	OriginalSubjectHeader = "Original-Subject"
	// OriginalSizeHeader is the size in bytes of a body that is too large for the dead letter. The log
	// has the record from which the body was made, at the sequence in LogSeqHeader.
	OriginalSizeHeader = "Original-Size"
)

// ServerHeaderPrefix is the prefix of the names of the headers to which NATS itself gives a meaning.
const ServerHeaderPrefix = "Nats-"

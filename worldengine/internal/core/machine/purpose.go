package machine

// Purpose is why the machine makes a record. The set is closed. It is not stored: the stepper gives each purpose its
// room in the log.
type Purpose string

// The purposes of records that are on no run's own subject.
const (
	PurposeJudgement    Purpose = "judgement"    // the rules decide about a handoff, or a person is asked to
	PurposeAcceptance   Purpose = "acceptance"   // a game is to apply the command of an accepted handoff
	PurposeReach        Purpose = "reach"        // a request for the command may have arrived
	PurposeUnreached    Purpose = "unreached"    // the writer stops, and no request for the command has arrived
	PurposeNextAttempt  Purpose = "next attempt" // the command is to be applied once more
	PurposeConclusion   Purpose = "conclusion"   // the command has a result
	PurposeCancellation Purpose = "cancellation" // the command is cancelled
	PurposeDecision     Purpose = "decision"     // a person approves or denies a proposal
	PurposePause        Purpose = "pause"        // of the town, or the world
	PurposeResume       Purpose = "resume"
	PurposeChange       Purpose = "change" // a put or a removal
	PurposeSignal       Purpose = "signal" // a signal that changes no town
)

// The purposes of records on a run's own subject. The last two close the run to others.
const (
	PurposeProgress   Purpose = "progress"    // the run goes on
	PurposeRunPause   Purpose = "run pause"   // the run is paused
	PurposeEndOfWait  Purpose = "end of wait" // the run waits no more: its handoff is judged next, or never
	PurposeRunClosing Purpose = "run closing" // the command of the run has its end next
)

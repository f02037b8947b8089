package game

import (
	"slices"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/backoff"
)

// state is an execution's memory, from which next decides about its next action.
type state struct {
	phase phase
	// due is when the execution goes on: it claims the command, the attempt begins, a request is sent, a plugin's
	// silence counts, or a commit is repeated.
	due time.Time
	// reach reports whether a request may have arrived, as far as is known.
	reach   apply.Reach
	reads   townReads
	wait    townWait
	absence absenceWait
	cancels cancellations
}

// phase says how far an execution has come. From committing it comes back to scheduled if there is another attempt.
type phase int

const (
	unclaimed  phase = iota // an earlier writer accepted the command, and this one has still to claim it
	scheduled               // the next attempt has not begun
	asking                  // the game is asked
	committing              // the attempt has ended, and its result is to be committed
	ended
)

// noteSent notes that a request is sent: its reach is unknown until noteReach is called.
func (s *state) noteSent() {
	if s.reach == apply.Unreached {
		s.reach = apply.ReachUnknown
	}
}

// noteReach notes the reach of the last request. It ignores ReachUnknown, and keeps a recorded
// MayHaveReached.
func (s *state) noteReach(reach apply.Reach) {
	if reach != apply.ReachUnknown && s.reach != apply.MayHaveReached {
		s.reach = reach
	}
}

// townReads says when the town is read from the log again.
type townReads struct {
	next     time.Time
	err      error           // of the last read; nil if it succeeded
	isLoaded bool            // after an error: the town was read, but the execution could not agree with it
	failed   backoff.Backoff // the pauses between two reads that fail
}

// noteFailure notes that a read failed. The log is asked less and less often, and the error stands in between.
func (r *townReads) noteFailure(now time.Time, err error, isLoaded bool) {
	r.err, r.isLoaded, r.next = err, isLoaded, now.Add(r.failed.Next())
}

// noteFreshRead notes that the town was read from the log, and when it is to be read again. While a record cannot be
// stored, the pauses go on growing.
func (s *state) noteFreshRead(next time.Time) {
	if s.reads.next = next; !s.cancels.unconfirmed {
		s.reads.failed.Reset()
	}
}

// townWait is a wait for the end of a pause, or for a town that can be read.
type townWait struct {
	since time.Time // zero if the execution does not wait
	// timeout is how long the client waits for the end of a pause.
	timeout, recheckInterval time.Duration
}

func (w *townWait) isOn() bool { return !w.since.IsZero() }

// deadline is when the client has waited long enough, also if the wait starts now.
func (w *townWait) deadline(now time.Time) time.Time {
	if w.isOn() {
		return w.since.Add(w.timeout)
	}
	return now.Add(w.timeout)
}

// absenceWait is a wait for a game that is absent.
type absenceWait struct {
	isAbsent bool // the last request reached nobody
	// answerBy is when the client is answered if the game is absent then; zero if the command does not
	// wait for an absent game.
	answerBy time.Time
}

// cancellations are the cancellations of a run that are not settled.
type cancellations struct {
	deferred []*cancellation // in the order of their times
	// unconfirmed is set if a commit of a cancellation got no answer: it may be stored already, or be
	// stored later.
	unconfirmed bool
}

// canDecide reports whether a deferred cancellation can be decided.
func (c *cancellations) canDecide(now time.Time, reach apply.Reach) bool {
	return slices.ContainsFunc(c.deferred, func(c *cancellation) bool { return c.canDecide(now, reach) })
}

// request says how far the request to a game is.
type request int

const (
	unsent   request = iota // it is sent when it is due
	awaited                 // a plugin may still answer; when it is due, its silence counts
	inFlight                // a console has it, and its end comes as a reply
)

// facts are found out before each action of an execution, and decide with the state.
type facts struct {
	now          time.Time
	isStopping   bool // the dispatcher sends no more
	hasLease     bool // this server is still the writer
	hasReply     bool // a game's reply is to be handled
	hasClient    bool // somebody waits for the answer
	request      request
	mayBeWorking bool // a plugin may be working on the last request
	isFirst      bool // this writer has just committed the command, and its first request may be repeated
	town         townView
}

// townView is the town as the execution has read it in this turn.
type townView struct {
	machine.Town
	pause   waiting.Reason // if its Kind is EndOfPause; other reasons do not concern the execution
	isRead  bool
	isFresh bool // it was read from the log
	isOld   bool // the execution has acted since
}

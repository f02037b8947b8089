package game

import (
	"time"

	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
)

// actionKind is the kind of an action. The set is closed.
type actionKind int

const (
	endTurn        actionKind = iota // until a time; for good if it is zero
	waitForTown                      // endTurn: the town is paused, or cannot be read
	endWait                          // the town is readable, and not paused any more
	readTown                         // and make the execution agree with it
	handleReply                      // a game's
	handleSilence                    // a plugin's
	decideCancels                    // the deferred ones
	outrunCancel                     // commit a record behind a cancellation that the log has not confirmed
	reportAbsence                    // answer the client that the game is absent
	reportPause                      // answer the client that the town, or the world, is paused
	claimCommand                     // an earlier writer's
	startAttempt                     // and send its first request
	sendRequest                      // again
	commitResult                     // the attempt's
	abandonCommand                   // leave it to the next writer
)

// action is the next act of an execution: a kind with its arguments.
type action struct {
	kind  actionKind
	until time.Time // of endTurn and waitForTown
	fresh bool      // of readTown: from the log, not from this writer's memory
}

// next returns the next action; the first case that applies decides. next is pure. What can change before the action has
// its effect is looked at once more: sendRequest and a console's login send nothing without the lease, and then next
// decides again; commitOnce abandons a result if the lease is lost between two tries.
func (s *state) next(f *facts) action {
	isDue := f.request != inFlight && !f.now.Before(s.due)
	reread := !f.now.Before(s.reads.next)
	needsFresh := !f.isFirst || s.wait.isOn() || s.cancels.unconfirmed
	switch {
	// Events come before actions that are due.
	case s.phase == ended:
		return action{kind: endTurn}
	case f.hasReply && !s.wait.isOn() && (s.phase == asking || f.request == inFlight):
		return action{kind: handleReply}
	case s.cancels.canDecide(f.now, s.reach):
		return action{kind: decideCancels}
	case s.phase == committing && isDue:
		return action{kind: commitResult}
	case f.isStopping && f.request != inFlight:
		return action{kind: abandonCommand}
	case f.isStopping || s.phase == committing:
		return s.sleep(f, s.due)
	case s.mayReportAbsence(f) && !f.now.Before(s.absence.answerBy):
		return action{kind: reportAbsence}
	case isDue && f.request == awaited:
		return action{kind: handleSilence}

	// The town is read in each turn, and before each request.
	case reread || s.reads.err == nil && (!f.town.isRead || isDue && (f.town.isOld || needsFresh && !f.town.isFresh)):
		return action{kind: readTown, fresh: reread || isDue && needsFresh}
	case !isDue:
		return s.sleep(f, s.due)

	// In a pause nothing is sent. If the town cannot be read, there may be a pause. But a plugin that may be working
	// on the command is asked for its answer.
	case s.reads.err != nil && !f.mayBeWorking:
		return s.waitForTown(f, s.reads.next)
	case s.reads.err != nil && s.reads.isLoaded: // no wait, in which a reply would not be handled
		return s.sleep(f, s.reads.next)
	case f.town.pause.Kind == waiting.EndOfPause && !f.mayBeWorking:
		return s.waitForPause(f)
	case s.cancels.unconfirmed && s.reads.err == nil:
		return action{kind: outrunCancel}
	case s.wait.isOn():
		return action{kind: endWait}

	case !f.hasLease: // another server may be the writer by now
		return action{kind: abandonCommand}
	case s.phase == unclaimed:
		return action{kind: claimCommand}
	case s.phase == scheduled:
		return action{kind: startAttempt}
	}
	return action{kind: sendRequest}
}

// sleep ends the turn until a time, or until something else is due before.
func (s *state) sleep(f *facts, until time.Time) action {
	if f.request == inFlight {
		until = queue.UntilWoken
	}
	if s.phase != committing && !f.isStopping {
		until = earliest(until, s.reads.next) // another server may pause the town, or end the run
		if s.mayReportAbsence(f) {
			until = earliest(until, s.absence.answerBy)
		}
	}
	for _, c := range s.cancels.deferred {
		until = earliest(until, c.until)
	}
	return action{kind: endTurn, until: until}
}

// waitForTown ends the turn until the town is to be read again.
func (s *state) waitForTown(f *facts, until time.Time) action {
	next := s.sleep(f, until)
	next.kind = waitForTown
	return next
}

// waitForPause waits for the end of a pause, of which a client is told when it has waited long enough.
func (s *state) waitForPause(f *facts) action {
	until, deadline := f.now.Add(s.wait.recheckInterval), s.wait.deadline(f.now)
	switch {
	case !f.hasClient:
	case !f.now.Before(deadline):
		return action{kind: reportPause}
	default:
		until = earliest(until, deadline)
	}
	return s.waitForTown(f, until)
}

// mayReportAbsence reports whether the client may be answered, in time, that the game is absent. In a pause it is
// answered that the town, or the world, is paused.
func (s *state) mayReportAbsence(f *facts) bool {
	return f.hasClient && s.absence.isAbsent && !s.absence.answerBy.IsZero() && (!s.wait.isOn() || s.reads.err != nil)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

package game

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/backoff"
)

// present is the time of the rows of TestNext.
var present = time.Unix(1000, 0)

// clock returns the time some seconds after present.
func clock(seconds int) time.Time { return present.Add(time.Duration(seconds) * time.Second) }

// ready is an execution whose first attempt begins now. A client waits for it, for 5 s in a pause. The town is to be
// read again in 2 s.
func ready() (*state, *facts) {
	return &state{
			phase: scheduled, reads: townReads{next: clock(2)},
			wait: townWait{timeout: 5 * time.Second, recheckInterval: 2 * time.Second},
		}, &facts{
			now: present, hasLease: true, hasClient: true, isFirst: true, town: townView{isRead: true, isFresh: true},
		}
}

var actionNames = map[actionKind]string{
	endTurn: "end the turn", waitForTown: "wait for the town", endWait: "end the wait", readTown: "read the town",
	handleReply: "handle the reply", handleSilence: "handle the silence", decideCancels: "decide the cancellations",
	outrunCancel: "outrun the cancellation", reportAbsence: "report the absence", reportPause: "report the pause",
	claimCommand: "claim", startAttempt: "start the attempt", sendRequest: "send the request",
	commitResult: "commit the result", abandonCommand: "abandon",
}

func (a action) String() string {
	text := actionNames[a.kind]
	switch {
	case a.fresh:
		return text + " in the log"
	case a.kind != endTurn && a.kind != waitForTown:
		return text
	case a.until.IsZero():
		return text + " for good"
	case a.until.Equal(queue.UntilWoken):
		return text + " until woken"
	}
	return fmt.Sprint(text, " for ", a.until.Sub(present))
}

func TestNext(t *testing.T) {
	t.Parallel()
	paused := waiting.Reason{Kind: waiting.EndOfPause}
	deferred := &cancellation{Signal: new(machine.Signal), until: clock(1)}
	forced := &cancellation{Signal: &machine.Signal{Force: true}, until: clock(1)}
	silentLog := errors.New("the log is silent")
	for _, row := range []struct {
		name   string
		change func(s *state, f *facts)
		want   string
	}{
		// A command on its way.
		{"it is accepted", func(s *state, f *facts) { f.town.isRead = false }, "read the town"},
		{"its first attempt begins", func(*state, *facts) {}, "start the attempt"},
		{"a plugin has the request", func(s *state, f *facts) {
			s.phase, s.due, f.request, f.town.isOld = asking, clock(1), awaited, true
		}, "end the turn for 1s"},
		{"a plugin has the request for long", func(s *state, f *facts) {
			s.phase, s.due, f.request, f.town.isOld = asking, clock(9), awaited, true
		}, "end the turn for 2s"},
		{"a console has the request", func(s *state, f *facts) {
			s.phase, s.reads.next, f.request = asking, queue.UntilWoken, inFlight
		}, "end the turn until woken"},
		{"a reply has come", func(s *state, f *facts) {
			s.phase, f.request, f.hasReply = asking, awaited, true
		}, "handle the reply"},
		{"a reply has come before a repeated request", func(s *state, f *facts) {
			s.phase, f.hasReply = asking, true
		}, "handle the reply"},
		{"a reply to an earlier attempt comes before the next one", func(s *state, f *facts) {
			f.hasReply = true
		}, "start the attempt"},
		{"a console answers an earlier attempt", func(s *state, f *facts) {
			f.request, f.hasReply = inFlight, true
		}, "handle the reply"},
		{"the plugin was silent", func(s *state, f *facts) {
			s.phase, f.request = asking, awaited
		}, "handle the silence"},
		{"the town is read before the request is repeated", func(s *state, f *facts) {
			s.phase, f.town.isOld, f.isFirst = asking, true, false
		}, "read the town in the log"},
		{"the request is repeated", func(s *state, f *facts) { s.phase = asking }, "send the request"},
		{"the lease is lost before an attempt", func(_ *state, f *facts) { f.hasLease = false }, "abandon"},
		{"the lease is lost before the request is repeated", func(s *state, f *facts) {
			s.phase, f.hasLease = asking, false
		}, "abandon"},
		{"the lease is lost while the request is on its way", func(s *state, f *facts) {
			s.phase, s.due, f.request, f.hasLease = asking, clock(1), awaited, false
		}, "end the turn for 1s"},
		{"the attempt has ended", func(s *state, f *facts) { s.phase = committing }, "commit the result"},
		{"the commit has failed", func(s *state, f *facts) {
			s.phase, s.due, s.reads.next = committing, clock(3), present
		}, "end the turn for 3s"},
		{"a reply comes after the end of the attempt", func(s *state, f *facts) {
			s.phase, f.hasReply = committing, true
		}, "commit the result"},
		{"the next attempt has a backoff", func(s *state, f *facts) { s.due = clock(1) }, "end the turn for 1s"},
		{"it is over", func(s *state, f *facts) { s.phase, f.hasReply = ended, true }, "end the turn for good"},

		// A command of an earlier writer.
		{"it is claimed before a request is sent", func(s *state, f *facts) { s.phase = unclaimed }, "claim"},
		{"the lease is lost before it is claimed", func(s *state, f *facts) {
			s.phase, f.hasLease = unclaimed, false
		}, "abandon"},
		{"it is claimed later", func(s *state, f *facts) { s.phase, s.due = unclaimed, clock(1) }, "end the turn for 1s"},

		// Reading the town.
		{"a turn before anything is due", func(s *state, f *facts) {
			s.due, f.town.isRead, f.isFirst = clock(1), false, false
		}, "read the town"},
		{"another server may have paused it", func(s *state, f *facts) {
			s.due, s.reads.next, f.town.isOld = clock(1), present, true
		}, "read the town in the log"},
		{"a second attempt", func(s *state, f *facts) {
			f.isFirst, f.town.isRead = false, false
		}, "read the town in the log"},
		{"it cannot be read", func(s *state, f *facts) {
			s.reads.err, f.town.isRead = silentLog, false
		}, "wait for the town for 2s"},
		{"it cannot be read, and nothing is due", func(s *state, f *facts) {
			s.reads.err, s.due, f.town.isRead = silentLog, clock(1), false
		}, "end the turn for 1s"},
		{"it could not be read a while ago", func(s *state, f *facts) {
			s.reads.err, s.reads.next, f.town.isRead = silentLog, present, false
		}, "read the town in the log"},
		{"it cannot be read, and the plugin may be working", func(s *state, f *facts) {
			s.phase, s.reads.err, f.mayBeWorking, f.town.isRead = asking, silentLog, true, false
		}, "send the request"},
		{"the execution does not agree with it, and the plugin may be working", func(s *state, f *facts) {
			s.phase, s.reads.err, s.reads.isLoaded, f.mayBeWorking, f.town.isRead = asking, silentLog, true, true, false
		}, "end the turn for 2s"},

		// A pause.
		{"the pause begins", func(s *state, f *facts) { f.town.pause = paused }, "wait for the town for 2s"},
		{"the pause begins, and the plugin may be working", func(s *state, f *facts) {
			s.phase, f.town.pause, f.mayBeWorking = asking, paused, true
		}, "send the request"},
		{"a woken turn in the pause", func(s *state, f *facts) {
			s.wait.since, f.town.isRead = clock(-1), false
		}, "read the town in the log"},
		{"a reply in the pause", func(s *state, f *facts) {
			s.phase, s.wait.since, f.town.pause, f.hasReply = asking, clock(-1), paused, true
		}, "wait for the town for 2s"},
		{"the client has not waited long enough", func(s *state, f *facts) {
			s.wait.since, f.town.pause = clock(-4), paused
		}, "wait for the town for 1s"},
		{"the client has waited long enough", func(s *state, f *facts) {
			s.wait.since, f.town.pause = clock(-5), paused
		}, "report the pause"},
		{"the client has its answer", func(s *state, f *facts) {
			s.wait.since, f.town.pause, f.hasClient = clock(-5), paused, false
		}, "wait for the town for 2s"},
		{"another writer has scheduled an attempt in the pause", func(s *state, f *facts) {
			s.wait.since, s.due = clock(-5), clock(1)
		}, "end the turn for 1s"},
		{"the pause is over", func(s *state, f *facts) { s.wait.since = clock(-5) }, "end the wait"},

		// An absent game.
		{"the client waits for the game", func(s *state, f *facts) {
			s.phase, s.due, s.absence, f.request = asking, clock(2), absenceWait{true, clock(1)}, awaited
		}, "end the turn for 1s"},
		{"the client has waited for the game", func(s *state, f *facts) {
			s.phase, s.due, s.absence, f.request = asking, clock(2), absenceWait{true, present}, awaited
		}, "report the absence"},
		{"the client has waited for the game, and has its answer", func(s *state, f *facts) {
			s.phase, s.due, s.absence, f.request = asking, clock(2), absenceWait{true, present}, awaited
			f.hasClient = false
		}, "end the turn for 2s"},
		{"the game is there", func(s *state, f *facts) {
			s.phase, s.due, s.absence, f.request = asking, clock(2), absenceWait{false, present}, awaited
		}, "end the turn for 2s"},
		{"commands fail without a game", func(s *state, f *facts) {
			s.phase, s.due, s.absence, f.request = asking, clock(2), absenceWait{isAbsent: true}, awaited
		}, "end the turn for 2s"},
		{"the client waits for the end of a pause now", func(s *state, f *facts) {
			s.absence, s.wait.since, f.town.pause = absenceWait{true, present}, present, paused
		}, "wait for the town for 2s"},
		{"it is not known whether there is a pause", func(s *state, f *facts) {
			s.absence, s.wait.since, s.reads.err = absenceWait{true, present}, present, silentLog
		}, "report the absence"},

		// Cancellations.
		{"it is not known whether the request has arrived", func(s *state, f *facts) {
			s.phase, s.reach, s.due, f.request = asking, apply.ReachUnknown, clock(2), awaited
			s.cancels.deferred = []*cancellation{deferred}
		}, "end the turn for 1s"},
		{"the request has not arrived", func(s *state, f *facts) {
			s.phase, s.reach, s.due, f.request = asking, apply.Unreached, clock(2), awaited
			s.cancels.deferred = []*cancellation{deferred}
		}, "decide the cancellations"},
		{"a reply comes before the cancellation", func(s *state, f *facts) {
			s.phase, s.reach, f.request, f.hasReply = asking, apply.Unreached, awaited, true
			s.cancels.deferred = []*cancellation{deferred}
		}, "handle the reply"},
		{"the operator has waited long enough", func(s *state, f *facts) {
			s.phase, s.reach, f.request, f.now = asking, apply.ReachUnknown, awaited, clock(1)
			s.cancels.deferred = []*cancellation{deferred}
		}, "decide the cancellations"},
		{"the second cancellation is by force", func(s *state, f *facts) {
			s.phase, s.reach, f.request = asking, apply.ReachUnknown, awaited
			s.cancels.deferred = []*cancellation{deferred, forced}
		}, "decide the cancellations"},
		{"the log has not confirmed a cancellation", func(s *state, f *facts) {
			s.cancels.unconfirmed = true
		}, "outrun the cancellation"},
		{"the log has not confirmed a cancellation of the first attempt", func(s *state, f *facts) {
			s.cancels.unconfirmed, f.town.isRead = true, false
		}, "read the town in the log"},
		{"the log did not confirm the outrunning record either", func(s *state, f *facts) {
			s.cancels.unconfirmed, s.reads.err, s.reads.isLoaded, f.town.isOld = true, silentLog, true, true
		}, "wait for the town for 2s"},

		// The dispatcher stops.
		{"before a request", func(s *state, f *facts) { f.isStopping = true }, "abandon"},
		{"with a result", func(s *state, f *facts) { s.phase, f.isStopping = committing, true }, "commit the result"},
		{"with a result that was not committed", func(s *state, f *facts) {
			s.phase, s.due, f.isStopping = committing, clock(1), true
		}, "abandon"},
		{"with a reply", func(s *state, f *facts) {
			s.phase, f.request, f.hasReply, f.isStopping = asking, awaited, true, true
		}, "handle the reply"},
		{"while a console has the request", func(s *state, f *facts) {
			s.phase, s.reads.next, f.request, f.isStopping = asking, present, inFlight, true
		}, "end the turn until woken"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, f := ready()
			row.change(s, f)
			require.Equal(t, row.want, s.next(f).String())
		})
	}
}

// chooser makes choices, other ones in each round, until there was a round for each combination.
type chooser struct{ chosen, sizes []int }

// choose returns one of the values.
func choose[T any](c *chooser, values ...T) T {
	c.sizes = append(c.sizes, len(values))
	if len(c.sizes) > len(c.chosen) {
		c.chosen = append(c.chosen, 0)
	}
	return values[c.chosen[len(c.sizes)-1]]
}

// nextRound reports whether there is another combination, and starts it.
func (c *chooser) nextRound() bool {
	for i := range c.sizes {
		if c.chosen[i]++; c.chosen[i] < c.sizes[i] {
			c.sizes = c.sizes[:0]
			return true
		}
		c.chosen[i] = 0
	}
	return false
}

// In every state a request is sent only after the town was read, and neither in a pause nor while a reply is to be
// handled; no turn ends at a time that is past, since the next one would follow at once.
func TestNext_EveryState(t *testing.T) {
	t.Parallel()
	silentLog := errors.New("the log is silent")
	unsettled := cancellations{[]*cancellation{{Signal: new(machine.Signal), until: clock(1)}}, true}
	for c := new(chooser); ; {
		s, f := ready()
		s.phase = choose(c, unclaimed, scheduled, asking, committing, ended)
		s.due = choose(c, present, clock(1))
		s.reach = choose(c, apply.Unreached, apply.ReachUnknown)
		s.reads = choose(c, townReads{}, townReads{err: silentLog}, townReads{err: silentLog, isLoaded: true})
		s.reads.next = choose(c, present, clock(2))
		s.wait.since = choose(c, time.Time{}, clock(-5))
		s.absence = choose(c, absenceWait{}, absenceWait{true, present}, absenceWait{true, clock(1)})
		s.cancels = choose(c, cancellations{}, unsettled)
		f.request = choose(c, unsent, awaited, inFlight)
		f.isStopping, f.hasReply = choose(c, false, true), choose(c, false, true)
		f.hasLease = choose(c, true, false)
		f.hasClient, f.mayBeWorking = choose(c, false, true), choose(c, false, true)
		f.town = choose(c, townView{}, townView{isRead: true}, townView{isRead: true, isOld: true})
		f.town.pause.Kind = choose(c, waiting.Nothing, waiting.EndOfPause)
		if problem := breach(s, f, s.next(f)); problem != "" {
			t.Fatalf("%s: %s\nstate: %+v\nfacts: %+v", s.next(f), problem, *s, *f)
		}
		if !c.nextRound() {
			return
		}
	}
}

// breach returns the rule that an action breaks; "" if there is none.
func breach(s *state, f *facts, next action) string {
	isDue, isPaused := !present.Before(s.due), f.town.pause.Kind == waiting.EndOfPause
	isKnown := s.reads.err == nil && f.town.isRead && !f.town.isOld
	sends := next.kind == claimCommand || next.kind == startAttempt || next.kind == sendRequest
	switch {
	case s.phase == ended && next != action{}:
		return "an execution that is over does something"
	case s.phase != ended && (next.kind == endTurn || next.kind == waitForTown) && !next.until.After(present):
		return "the turn ends at a time that is past"
	case sends && !f.hasLease:
		return "a request is sent without the lease"
	case sends && (!isDue || f.isStopping || f.request == inFlight || s.phase == committing):
		return "a request is sent out of turn"
	case sends && !f.mayBeWorking && (!isKnown || isPaused):
		return "a request is sent in a pause, or without a look at the town"
	case sends && s.reads.err != nil && s.reads.isLoaded:
		return "a request is sent although the execution does not agree with the town"
	case sends && s.cancels.unconfirmed && s.reads.err == nil:
		return "a request is sent before a cancellation that may come"
	case sends && s.phase == asking && f.hasReply:
		return "a request is sent before a reply is handled"
	case sends && s.wait.isOn():
		return "a request is sent in a wait"
	case next.kind == sendRequest && (s.phase != asking || f.request != unsent):
		return "a request is sent twice"
	case next.kind == handleReply && !f.hasReply,
		next.kind == decideCancels && !s.cancels.canDecide(present, s.reach),
		next.kind == commitResult && s.phase != committing,
		next.kind == outrunCancel && (!isKnown || !s.cancels.unconfirmed),
		next.kind == endWait && !s.wait.isOn(),
		next.kind == reportPause && (!f.hasClient || !isKnown || !isPaused || f.mayBeWorking),
		next.kind == reportAbsence && (!f.hasClient || !s.absence.isAbsent):
		return "there is no reason for it"
	}
	return ""
}

// A request that becomes due while the town is read from memory waits until the town is read from the log.
func TestNext_DueWhileReading(t *testing.T) {
	t.Parallel()
	s, f := ready()
	s.phase, s.due, f.isFirst, f.town = asking, clock(1), false, townView{}
	require.Equal(t, action{kind: readTown}, s.next(f))
	f.town.isRead, f.now = true, clock(1)
	require.Equal(t, action{kind: readTown, fresh: true}, s.next(f))
}

// While the record behind a cancellation cannot be stored, each look at the town comes later than the one before.
func TestState_OutrunBackoff(t *testing.T) {
	t.Parallel()
	s := &state{reads: townReads{failed: backoff.Backoff{Min: time.Second, Max: time.Minute,
		Jitter: func(below time.Duration) time.Duration { return below / 2 }}}}
	for _, row := range []struct {
		unconfirmed bool
		next        int
	}{{true, 1}, {true, 2}, {true, 4}, {false, 1}} {
		s.cancels.unconfirmed = row.unconfirmed
		s.noteFreshRead(clock(0))
		s.reads.noteFailure(clock(0), errors.New("full"), true)
		require.Equal(t, clock(row.next), s.reads.next)
	}
}

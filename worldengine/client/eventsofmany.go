package client

import (
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// runs are the runs that a follower of many knows.
type runs struct {
	known map[string]*followed
	order []*followed // by when they became known
	// floor is the begin of the runs that are followed from their first event.
	floor time.Time
	// mark is a time up to which every run that began is known, but for those that began
	// pace.clocks before: when the newest event was persisted that came by the subscription while
	// nothing was lost, or that of the list behind a loss with which a run began. It is the
	// servers' clock.
	mark time.Time
	// unswept counts the events since ended runs were forgotten.
	unswept int
}

// followed is a run of which events were yielded, up to last.
type followed struct {
	id    string
	last  int64
	ended bool
	// lost reports that its events cannot be had, and that the reader was told.
	lost          bool
	began, latest time.Time // the persistedAt of its first and last event
}

func (f *follower) add(runID string, last int64) *followed {
	run := &followed{id: runID, last: last}
	f.known[runID] = run
	f.order = append(f.order, run)
	return run
}

// openStatuses are those of runs that have not ended.
var openStatuses = []runevents.RunStatus{
	runevents.RunPending, runevents.RunIsApproved, runevents.RunRunning, runevents.RunIsPaused,
}

// begin notes how far the runs are that began before those that are followed from their first
// event: what comes from now on is behind that. Where the time is that of this process, a run that
// began shortly before may seem to have begun since by the clock of a server.
func (f *follower) begin() error {
	f.floor = f.what.From
	now := time.Now()
	if f.what.From.IsZero() {
		f.floor = now.Add(-f.pace.clocks)
		if err := f.note(runList{From: f.floor, To: now}); err != nil {
			return err
		}
	}
	open := f.what.OpenSince
	if open == 0 {
		open = time.Hour
	}
	for _, status := range openStatuses {
		list := runList{From: f.floor.Add(-open), To: f.floor, Status: string(status)}
		if err := f.note(list); err != nil {
			return err
		}
	}
	return nil
}

// note makes the runs of a list known as far as they are.
func (f *follower) note(list runList) error {
	list.TownID, list.Limit = f.what.TownID, f.pace.page
	for listed, err := range f.client.list(f.ctx, list) {
		if err != nil {
			return err
		}
		if f.known[listed.RunID] == nil {
			run := f.add(listed.RunID, listed.LastEventSeq)
			run.ended, run.latest = listed.Status.Terminal(), list.To
		}
	}
	return nil
}

// catchUpRuns is catchUp for many runs. Where it breaks off, the mark says how far the list was
// gone through.
func (f *follower) catchUpRuns() error {
	for _, run := range slices.Clone(f.order) {
		if run.ended || run.lost {
			continue
		}
		if err := f.missing(run, false); err != nil {
			return err
		}
	}
	since := f.floor
	if margin := f.mark.Add(-f.pace.clocks); margin.After(since) {
		since = margin
	}
	list := runList{TownID: f.what.TownID, From: since, Order: "oldest", Limit: f.pace.page}
	for listed, err := range f.client.list(f.ctx, list) {
		if err != nil {
			return err
		}
		run := f.known[listed.RunID]
		if run == nil {
			run = f.add(listed.RunID, 0)
		}
		if !run.lost && run.last < listed.LastEventSeq {
			if err := f.missing(run, false); err != nil {
				return err
			}
		}
		f.reached(run.began)
	}
	return nil
}

// reached moves the mark on, and forgets what ended so long ago that no list has it again.
func (f *follower) reached(at time.Time) {
	if at.After(f.mark) {
		f.mark = at
	}
	if f.unswept < f.pace.sweep {
		return
	}
	f.unswept = 0
	f.order = slices.DeleteFunc(f.order, func(run *followed) bool {
		old := run.ended && !run.lost && run.latest.Before(f.old())
		if old {
			delete(f.known, run.id)
		}
		return old
	})
}

// old is the time before which runs that ended may have been forgotten.
func (f *follower) old() time.Time { return f.mark.Add(-2 * f.pace.clocks) }

// missing yields what was not yielded of a run. Of one whose events are no longer kept there is no
// more, unless it is certain that there is a gap.
func (f *follower) missing(run *followed, gap bool) error {
	err := f.fetch(run)
	if !gap && IsCode(err, wire.CodeUnknownRun) {
		run.ended = true
		return nil
	}
	return f.lose(run, err)
}

// lose tells the reader of an error that the events of a run cannot be had, and returns any other.
func (f *follower) lose(run *followed, err error) error {
	if _, away := f.away(err); err == nil || away || !ofRun(err) {
		return err
	}
	run.lost = true
	if !f.yield(Event{}, &RunError{RunID: run.id, AfterSeq: run.last, Err: err}) {
		return errStopped
	}
	return nil
}

// takeOfMany takes in an event that came, with what is wrong with it.
func (f *follower) takeOfMany(event *Event, wrong error) error {
	run := f.known[event.RunID]
	if run == nil {
		if wrong != nil {
			run = f.add(event.RunID, 0)
		} else if run, wrong = f.meet(event); run == nil {
			return wrong
		}
	}
	switch {
	case run.lost:
		return nil
	case wrong != nil:
		return f.lose(run, wrong)
	case event.RunSeq > run.last+1:
		if err := f.missing(run, true); err != nil || run.lost {
			return err
		}
	}
	if err := f.next(run, event); err != nil {
		return err
	}
	at := persisted(event)
	if f.what.From.IsZero() && at.Before(f.floor) { // the clock of this process is ahead
		f.floor = at
	}
	f.reached(at)
	return nil
}

// meet returns the run of an event that is not known, with an error of its own. The run is nil for
// an old event that is published again, such as by a repair, and with any other error.
func (f *follower) meet(event *Event) (*followed, error) {
	if persisted(event).Before(f.old()) {
		return nil, nil
	}
	if event.RunSeq == 1 {
		return f.add(event.RunID, 0), nil
	}
	for first, err := range f.client.RunEvents(f.ctx, event.RunID, 0) {
		switch began := persisted(&first); {
		case IsCode(err, wire.CodeUnknownRun): // its first events are not kept
		case err != nil:
			if _, away := f.away(err); away || !ofRun(err) {
				return nil, err
			}
			return f.add(event.RunID, event.RunSeq-1), err
		case !began.Before(f.floor) && !began.Before(f.old()):
			return f.add(event.RunID, 0), nil
		}
		break
	}
	return f.add(event.RunID, event.RunSeq-1), nil
}

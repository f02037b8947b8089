package client

import (
	"math"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// runs are the runs that a follower of many knows.
//
// A mark is a sequence of the world's log. Lists and the events of a run are told behind a mark,
// and an event that comes by the subscription has its own in the header Log-Seq.
type runs struct {
	known map[string]*followed
	order []*followed // by when they became known
	// since is the begin of the runs that are followed from their first event, and listed reports
	// whether all of them are known. While they are listed, since moves on.
	since  time.Time
	listed bool
	// mark is up to where there is nothing left to yield, but for the runs that are still to be
	// listed.
	mark uint64
	// newest is where the mark moves to once an event came that was persisted pace.late later, and
	// nothing was lost meanwhile.
	newest place
	// unswept counts the events since ended runs were forgotten.
	unswept int
}

// place is the mark of an event, and when it was persisted by the servers' clock.
type place struct {
	mark uint64
	at   time.Time
}

// followed is a run of which events were yielded, up to last.
type followed struct {
	id string
	// after is a mark up to which its events are not yielded.
	after uint64
	last  int64
	ended bool
	// lost reports that its events cannot be had, and that the reader was told.
	lost bool
	// began is the persistedAt of its first event, if that was yielded.
	began time.Time
	mark  uint64 // its last event is not behind this mark
}

// unknownMark is the mark of an event that does not tell it.
const unknownMark = math.MaxUint64

func (f *follower) add(runID string, last int64) *followed {
	run := &followed{id: runID, last: last, mark: unknownMark}
	f.known[runID] = run
	f.order = append(f.order, run)
	return run
}

// begin gets the mark behind which following begins: what comes from now on is behind it.
func (f *follower) begin() error {
	f.since, f.listed = f.what.From, f.what.From.IsZero()
	list := messages.RunList{TownID: f.what.TownID, Limit: 1}
	page, err := f.client.runPage(f.ctx, list)
	f.mark = page.Mark
	return err
}

// catchUpRuns is catchUp for many runs. It may break off anywhere and be done again.
func (f *follower) catchUpRuns() error {
	for _, run := range slices.Clone(f.order) {
		if run.ended || run.lost {
			continue
		}
		if err := f.missing(run, false); err != nil {
			return err
		}
	}
	list := messages.RunList{TownID: f.what.TownID, Limit: f.pace.page}
	if !f.listed {
		list.From, list.Order = moment(f.since), "oldest"
		if _, err := f.catchUpList(list, 0); err != nil {
			return err
		}
		f.listed = true
	}
	list.From, list.Order = "", ""
	mark, err := f.catchUpList(list, f.mark)
	if err == nil {
		f.mark, f.newest = mark, place{}
	}
	return err
}

// catchUpList yields what was not yielded of the runs of a list that are behind a mark, and returns
// the mark up to which that is complete.
func (f *follower) catchUpList(list messages.RunList, after uint64) (mark uint64, err error) {
	if after > 0 {
		list.AfterMark = &after
	}
	for more := true; more; more = list.After > 0 {
		page, err := f.client.runPage(f.ctx, list)
		if err != nil {
			return 0, err
		}
		if list.After == 0 {
			mark = page.Mark
		}
		list.After = page.Next
		for i := range page.Runs {
			run, err := f.catchUpListed(&page.Runs[i].Snapshot, after)
			if err != nil {
				return 0, err
			}
			if !f.listed && run.began.After(f.since) {
				f.since = run.began
			}
			f.sweep()
		}
	}
	return mark, nil
}

// catchUpListed yields what was not yielded of a run of a list that is behind a mark.
func (f *follower) catchUpListed(listed *runevents.Snapshot, after uint64) (*followed, error) {
	run := f.known[listed.RunID]
	if run == nil {
		run = f.add(listed.RunID, 0)
		run.after = after
	}
	if run.lost || run.last >= listed.LastEventSeq {
		return run, nil
	}
	return run, f.missing(run, false)
}

// reached moves the mark on when an event came while nothing was lost: what was persisted so much
// earlier than that event came too.
func (f *follower) reached(at place) {
	if at.mark != unknownMark {
		if f.newest.mark > 0 && at.at.Before(f.newest.at.Add(f.pace.late)) {
			return
		}
		f.mark, f.newest = max(f.mark, f.newest.mark), at
	}
	f.sweep()
}

// sweep forgets the runs that ended before the mark: they are in no list again.
func (f *follower) sweep() {
	if f.unswept < f.pace.sweep {
		return
	}
	f.unswept = 0
	f.order = slices.DeleteFunc(f.order, func(run *followed) bool {
		old := run.ended && !run.lost && run.mark <= f.mark &&
			(f.listed || run.began.Before(f.since))
		if old {
			delete(f.known, run.id)
		}
		return old
	})
}

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

// takeOfMany takes in an event that came, its mark, and what is wrong with it.
func (f *follower) takeOfMany(event *Event, mark uint64, wrong error) error {
	run := f.known[event.RunID]
	switch {
	case run != nil:
	case wrong == nil && mark <= f.mark:
		return nil // it was yielded, or is not to be, and is published again, such as by a repair
	default:
		run = f.add(event.RunID, 0)
		run.after = f.mark
	}
	switch {
	case run.lost:
		return nil
	case wrong != nil:
		return f.lose(run, wrong)
	case event.RunSeq > run.last+1:
		if err := f.missing(run, run.last > 0); err != nil || run.lost {
			return err
		}
		if run.last == 0 { // its earlier events are not kept
			run.last, run.ended = event.RunSeq-1, false
		}
	}
	if err := f.next(run, event, mark); err != nil {
		return err
	}
	f.reached(place{mark, persisted(event)})
	return nil
}

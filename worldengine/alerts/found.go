package alerts

import (
	"maps"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/runevents/recent"
	"worldengine/worldengine/ratelimit"
)

// Bounds of the alerts about events within foundPeriod: for one producer in one town, and for all
// producers. The engine's own events have foundOfAll for themselves.
const (
	FoundOfTown = 30
	foundOfAll  = 120
	foundPeriod = time.Minute
)

// found remembers the alerts about runs, so that each run has one of a code. It is safe for
// concurrent use.
type found struct {
	runs      *recent.Map[foundRun, *foundCount]
	town, all *ratelimit.Limit

	mu   sync.Mutex
	more map[runevents.AlertCode]int64
}

// foundRun is a run and a code.
type foundRun struct {
	code  runevents.AlertCode
	runID string
}

// foundCount says up to which event a run was counted, and how many there were after the first.
type foundCount struct{ runSeq, more int64 }

func newFound() found {
	return found{
		runs: recent.NewMap[foundRun, *foundCount](runevents.DefaultMaxAlerts),
		town: ratelimit.New(FoundOfTown, foundPeriod),
		all:  ratelimit.New(foundOfAll, foundPeriod),
		more: map[runevents.AlertCode]int64{},
	}
}

// RaiseFound raises an alert of a projection about a run of a town; "" for an unknown town. If its
// code needs one alert a run (runevents.AlertCode.OncePerRun), the first event raises it, within the
// bounds. All others are counted: with the alert of the run, and in the statistics.
func (a *Alerts) RaiseFound(townToken string, alert runevents.Alert) {
	if alert.At == "" {
		alert.At = runevents.Timestamp(a.now())
	}
	if !alert.Code.OncePerRun() || a.found.first(&alert, townToken, a.now()) {
		a.RaiseOnce(alert)
	}
}

// first reports whether an alert is the first of its run and code, and may be raised now. It counts
// any other, each event once.
func (f *found) first(alert *runevents.Alert, townToken string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if run, known := f.runs.Get(foundRun{alert.Code, alert.RunID}); known {
		if alert.RunSeq > run.runSeq {
			run.runSeq = alert.RunSeq
			run.more++
			f.more[alert.Code]++
		}
		return false
	}
	f.remember(alert)
	may := f.may(alert, townToken, now)
	if !may {
		f.more[alert.Code]++
	}
	return may
}

// may reports whether the bounds leave room for an alert. Producers take none of the engine's.
func (f *found) may(alert *runevents.Alert, townToken string, now time.Time) bool {
	if alert.AppendedBy == "" {
		may, _ := f.all.May("engine", now)
		return may
	}
	may, _ := f.town.May(string(alert.Code)+townToken+" "+alert.AppendedBy, now)
	if may {
		may, _ = f.all.May("producers", now)
	}
	return may
}

// remember takes note of the first alert of a run and code.
func (f *found) remember(alert *runevents.Alert) {
	f.runs.Add(foundRun{alert.Code, alert.RunID}, &foundCount{runSeq: alert.RunSeq})
}

// recall takes note of an alert that was raised before, about its first event.
func (f *found) recall(alert *runevents.Alert) {
	if alert.Code.OncePerRun() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.remember(alert)
	}
}

// moreOf returns how many more of its code were found in the run of an alert.
func (f *found) moreOf(alert *runevents.Alert) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if run, known := f.runs.Get(foundRun{alert.Code, alert.RunID}); known {
		return run.more
	}
	return 0
}

func (f *found) counts() map[runevents.AlertCode]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.more)
}

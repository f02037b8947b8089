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
	town, all *ratelimit.Limit

	mu   sync.Mutex
	runs *recent.Map[foundRun, *foundCount]
	more map[runevents.AlertCode]int64
}

// foundRun is a run and a code.
type foundRun struct {
	code  runevents.AlertCode
	runID string
}

// foundCount counts the events of a run after the first, up to a runSeq.
type foundCount struct{ runSeq, more int64 }

func newFound() found {
	return found{
		runs: recent.NewMap[foundRun, *foundCount](maxRemembered),
		town: ratelimit.New(FoundOfTown, foundPeriod),
		all:  ratelimit.New(foundOfAll, foundPeriod),
		more: map[runevents.AlertCode]int64{},
	}
}

// RaiseFound raises an alert of a projection about a run of a town; "" for an unknown town. If its
// code needs one alert a run (runevents.AlertCode.OncePerRun), the first event raises it, within the
// bounds. All others are counted: with the alert of the run, and in the statistics.
func (a *Alerts) RaiseFound(townToken string, alert runevents.Alert) {
	if !alert.Code.OncePerRun() || a.found.first(&alert, townToken, a.config.Now()) {
		a.RaiseOnce(alert)
	}
}

// first reports whether an alert is the first of its run and code, and may be raised now. It counts
// any other, each event once.
func (f *found) first(alert *runevents.Alert, townToken string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := foundRun{alert.Code, alert.RunID}
	if run, known := f.runs.Get(key); known {
		if alert.RunSeq > run.runSeq {
			run.runSeq = alert.RunSeq
			run.more++
			f.more[alert.Code]++
		}
		return false
	}
	f.runs.Add(key, &foundCount{runSeq: alert.RunSeq})
	allowed := f.allowed(alert, townToken, now)
	if !allowed {
		f.more[alert.Code]++
	}
	return allowed
}

// allowed reports whether the bounds leave room for an alert. Producers take none of the engine's.
func (f *found) allowed(alert *runevents.Alert, townToken string, now time.Time) bool {
	lane := "engine"
	if alert.AppendedBy != "" {
		lane = "producers"
		producer := string(alert.Code) + townToken + " " + alert.AppendedBy
		if allowed, _ := f.town.May(producer, now); !allowed {
			return false
		}
	}
	allowed, _ := f.all.May(lane, now)
	return allowed
}

// recall remembers an alert that was raised before, about its first event.
func (f *found) recall(alert *runevents.Alert) {
	if alert.Code.OncePerRun() {
		f.runs.Add(foundRun{alert.Code, alert.RunID}, &foundCount{runSeq: alert.RunSeq})
	}
}

// moreOf counts the further events of the run and code of an alert.
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

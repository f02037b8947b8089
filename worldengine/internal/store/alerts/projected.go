package alerts

import "worldengine/runevents"

// eventCount counts the further events, up to a runSeq, for which an alert of a run stands. While the rate
// postpones the alert, it stands for none.
type eventCount struct {
	runSeq, more int64
	postponed    bool
}

// oncePerRun reports whether a run gets at most one alert with a code.
func oncePerRun(c runevents.AlertCode) bool {
	return c == runevents.InvalidTransition || c == runevents.CausalViolation || c == runevents.NonContiguousFetch
}

// key identifies an alert that is raised once. Of some codes, a run has only one alert.
func key(alert *runevents.Alert) string {
	if oncePerRun(alert.Code) {
		return string(alert.Code) + "|" + alert.RunID
	}
	return alert.ID()
}

// remember reports whether an alert is raised for the first time.
func (a *Alerts) remember(alert *runevents.Alert) bool {
	return a.raised.Add(key(alert), &eventCount{runSeq: alert.RunSeq})
}

// RaiseProjected raises an alert of a projection about a run of a town; townToken is "" if the town is
// unknown. If a run gets only one alert of the code (oncePerRun), the first
// event raises the alert, and further events are counted, in the run's alert and in Stats. RaiseProjected
// returns false if too many were raised lately: the caller raises the alert again later.
func (a *Alerts) RaiseProjected(townToken string, alert runevents.Alert) bool {
	if !oncePerRun(alert.Code) {
		a.RaiseOnce(alert)
		return true
	}
	raise, stands := a.noteEvent(&alert, townToken)
	if raise {
		a.Raise(alert)
	}
	return stands
}

// noteEvent reports whether to raise an alert now, as the first of its run and code, and whether the run
// has an alert then. It counts each event without an alert of its own once.
func (a *Alerts) noteEvent(alert *runevents.Alert, townToken string) (raise, stands bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	isNew := a.remember(alert)
	run, _ := a.raised.Get(key(alert))
	switch {
	case isNew || run.postponed:
		raise = a.allowed(alert, townToken)
		if isNew && !raise {
			a.stats.AlertsMore[alert.Code]++
		} else if !isNew && raise {
			a.stats.AlertsMore[alert.Code]--
		}
		run.runSeq, run.postponed = max(run.runSeq, alert.RunSeq), !raise
		return raise, raise
	case alert.RunSeq > run.runSeq:
		run.runSeq = alert.RunSeq
		run.more++
		a.stats.AlertsMore[alert.Code]++
	}
	return false, true
}

// allowed reports whether an alert may be raised now. Alerts about producers' events leave
// the room for alerts about the engine's events.
func (a *Alerts) allowed(alert *runevents.Alert, townToken string) bool {
	now, origin := a.config.Now(), "engine"
	if alert.AppendedBy != "" {
		origin = "producers"
		producer := string(alert.Code) + townToken + " " + alert.AppendedBy
		if allowed, _ := a.producerLimit.May(producer, now); !allowed {
			return false
		}
	}
	allowed, _ := a.originLimit.May(origin, now)
	return allowed
}

// furtherEvents returns the number of further events for which an alert stands.
func (a *Alerts) furtherEvents(alert *runevents.Alert) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if run, known := a.raised.Get(key(alert)); known {
		return run.more
	}
	return 0
}

package alerts

import "worldengine/runevents"

// found counts the further events, up to a runSeq, for which an alert of a run stands.
type found struct{ runSeq, more int64 }

// key identifies an alert that is raised once. Of some codes, a run has only one alert.
func key(alert *runevents.Alert) string {
	if alert.Code.OncePerRun() {
		return string(alert.Code) + "|" + alert.RunID
	}
	return alert.ID()
}

// remember reports whether an alert is raised for the first time.
func (a *Alerts) remember(alert *runevents.Alert) bool {
	return a.raised.Add(key(alert), &found{runSeq: alert.RunSeq})
}

// RaiseFound raises an alert of a projection about a run of a town; townToken is "" if the town is
// unknown. If a run gets only one alert of the code (runevents.AlertCode.OncePerRun), the first
// event raises the alert, unless too many were raised lately. Further events are counted, in the
// run's alert and in Stats.
func (a *Alerts) RaiseFound(townToken string, alert runevents.Alert) {
	if !alert.Code.OncePerRun() {
		a.RaiseOnce(alert)
	} else if a.first(&alert, townToken) {
		a.Raise(alert)
	}
}

// first reports whether an alert is the first of its run and code, and may be raised now. Otherwise
// it counts the event, once.
func (a *Alerts) first(alert *runevents.Alert, townToken string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.remember(alert) {
		allowed := a.allowed(alert, townToken)
		if !allowed {
			a.stats.AlertsMore[alert.Code]++
		}
		return allowed
	}
	run, _ := a.raised.Get(key(alert))
	if alert.RunSeq > run.runSeq {
		run.runSeq = alert.RunSeq
		run.more++
		a.stats.AlertsMore[alert.Code]++
	}
	return false
}

// allowed reports whether an alert may be raised now. Alerts about producers' events take no room
// from alerts about the engine's events.
func (a *Alerts) allowed(alert *runevents.Alert, townToken string) bool {
	now, lane := a.config.Now(), "engine"
	if alert.AppendedBy != "" {
		lane = "producers"
		producer := string(alert.Code) + townToken + " " + alert.AppendedBy
		if allowed, _ := a.ofProducer.May(producer, now); !allowed {
			return false
		}
	}
	allowed, _ := a.ofLane.May(lane, now)
	return allowed
}

// moreOf returns the number of further events for which an alert stands.
func (a *Alerts) moreOf(alert *runevents.Alert) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if run, known := a.raised.Get(key(alert)); known {
		return run.more
	}
	return 0
}

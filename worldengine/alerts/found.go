package alerts

import "worldengine/runevents"

// codeOfRun is a code and a run, which has one alert of it.
type codeOfRun struct {
	code  runevents.AlertCode
	runID string
}

// found counts the events of a run after the first, up to a runSeq.
type found struct{ runSeq, more int64 }

// RaiseFound raises an alert of a projection about a run of a town; "" for an unknown town. If its
// code needs one alert a run (runevents.AlertCode.OncePerRun), the first event raises it, within the
// bounds. All others are counted: with the alert of the run, and in the statistics.
func (a *Alerts) RaiseFound(townToken string, alert runevents.Alert) {
	if !alert.Code.OncePerRun() || a.first(&alert, townToken) {
		a.RaiseOnce(alert)
	}
}

// first reports whether an alert is the first of its run and code, and may be raised now. It counts
// any other, each event once.
func (a *Alerts) first(alert *runevents.Alert, townToken string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.remember(alert) {
		allowed := a.allowed(alert, townToken)
		if !allowed {
			a.more[alert.Code]++
		}
		return allowed
	}
	run, _ := a.runs.Get(codeOfRun{alert.Code, alert.RunID})
	if alert.RunSeq > run.runSeq {
		run.runSeq = alert.RunSeq
		run.more++
		a.more[alert.Code]++
	}
	return false
}

// remember remembers an alert as its run's first, and reports whether it is. The caller holds mu.
func (a *Alerts) remember(alert *runevents.Alert) bool {
	return a.runs.Add(codeOfRun{alert.Code, alert.RunID}, &found{runSeq: alert.RunSeq})
}

// allowed reports whether the bounds leave room for an alert. Producers take none of the engine's.
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

// moreOf counts the further events of the run and code of an alert.
func (a *Alerts) moreOf(alert *runevents.Alert) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if run, known := a.runs.Get(codeOfRun{alert.Code, alert.RunID}); known {
		return run.more
	}
	return 0
}

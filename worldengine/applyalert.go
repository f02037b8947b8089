package worldengine

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
)

// lateAnswer takes an answer to an application that was given up. One that says that the command is
// applied changes nothing: the world and the engine have parted, which somebody has to look at.
func (e *Engine) lateAnswer(l *lateAnswer, msg *nats.Msg) {
	answer, err := apply.ParseAnswer(msg.Data, l.handoffID, schemas.Limits{})
	if err != nil || answer.Status != apply.Applied {
		return
	}
	e.raiseLate(l)
}

// raiseLate tells that a game has applied a command that failed here.
func (e *Engine) raiseLate(l *lateAnswer) {
	e.raise(e.applyAlert(runevents.PluginLateAnswer, l.runID, l.handoffID, fmt.Sprintf("The plugin of town %q says that it applied %s "+
		"after the handoff had failed. The town was left as it was: put its true state.", l.townID, l.handoffID)))
}

// alertFailure raises what a failed application asks an operator to look at.
func (e *Engine) alertFailure(a *applying, failed *applyFailed) {
	if failed == nil {
		return
	}
	switch failed.Reason {
	case ReasonRCONInDoubt, ReasonPluginTimeout:
		e.raise(e.applyAlert(runevents.ApplyInDoubt, a.runID, a.handoff.HandoffID, fmt.Sprintf("Nobody knows whether %s was applied to town %q. "+
			"The town was left as it was: look at the game and put its true state.", a.handoff.HandoffID, a.town)))
	case ReasonPluginStateInvalid:
		e.raise(e.applyAlert(runevents.PluginStateInvalid, a.runID, a.handoff.HandoffID, fmt.Sprintf("The plugin applied %s to town %q and reported "+
			"a state that cannot be its. The town was left as it was: put its true state.", a.handoff.HandoffID, a.town)))
	}
}

func (e *Engine) applyAlert(code runevents.AlertCode, runID, handoffID, message string) runevents.Alert {
	return runevents.Alert{
		Code: code, Severity: code.Severity(), RunID: runID, TenantID: e.config.TenantID,
		ProjectID: e.config.ProjectID, EnvironmentID: e.config.EnvironmentID, HandoffID: handoffID, Message: message,
	}
}

// raise tells an alert, once however often it is found.
func (e *Engine) raise(a runevents.Alert) {
	if e.raised.First(&a) {
		e.alerts.raise(a)
	}
}

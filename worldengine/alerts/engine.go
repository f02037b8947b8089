package alerts

import (
	"fmt"
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/wire"
)

// Environment makes the engine's own alerts, which name it. Their texts say what happened, what it
// means and what to do.
type Environment struct{ TenantID, ProjectID, EnvironmentID string }

// About is what an alert is about. Members that do not apply are "".
type About struct {
	TownID, HandoffID, RunID string
	Trace                    trace.Context // of the run
}

// LateAnswer is that a game has applied a command that failed here.
func (e Environment) LateAnswer(of About) runevents.Alert {
	return e.alert(runevents.PluginLateAnswer, of, fmt.Sprintf(
		"The plugin of town %q says that it applied %s after the handoff had failed, or was "+
			"cancelled. The town was left as it was: put its true state.", of.TownID, of.HandoffID))
}

// DoubleAnswer is that more answers than requests say that a command was applied: the town has more
// than one plugin, and each may have changed its game, or its plugin answers a request twice.
func (e Environment) DoubleAnswer(of About) runevents.Alert {
	return e.alert(runevents.PluginDoubleAnswer, of, fmt.Sprintf("More answers than "+
		"requests say that %s was applied to town %q: is there a second plugin for the town? The "+
		"first answer counts. End one of the two, and put the town's true state if it is another.",
		of.HandoffID, of.TownID))
}

// InDoubt is that it is not known whether a command was applied.
func (e Environment) InDoubt(of About) runevents.Alert {
	return e.alert(runevents.ApplyInDoubt, of, fmt.Sprintf(
		"It is not known whether %s was applied to town %q. "+
			"The town was left as it was: look at the game and put its true state.",
		of.HandoffID, of.TownID))
}

// CancelledByForce is that an operator asked to cancel a run although its game may have the
// command. It is stored before the cancellation, which may come too late.
func (e Environment) CancelledByForce(of About, actorID string) runevents.Alert {
	return e.alert(runevents.ApplyInDoubt, of, fmt.Sprintf(
		"%s asked to cancel run %s of town %q by force. If the run is CANCELLED, its game may "+
			"have applied the command, and the town was left as it was: look at the game and put "+
			"its true state. If the run has a result, that came first: nothing is to be done.",
		actorID, of.RunID, of.TownID))
}

// StateInvalid is that a plugin applied a command and reported a state that the town cannot have.
func (e Environment) StateInvalid(of About) runevents.Alert {
	return e.alert(runevents.PluginStateInvalid, of, fmt.Sprintf(
		"The plugin applied %s to town %q and reported a state that cannot be its. "+
			"The town was left as it was: put its true state.", of.HandoffID, of.TownID))
}

// PluginAbsent is that a town has had no plugin since some time, while commands of it, so many, are
// in hand; fate says what becomes of them.
func (e Environment) PluginAbsent(
	of About, since time.Time, commands int, prospect string,
) runevents.Alert {
	return e.ofTown(runevents.PluginAbsent, of, since, fmt.Sprintf(
		"Town %q has had no plugin or console since %s; commands in hand: %d. %s Start the game "+
			"server, or check that its plugin serves this town.", of.TownID, runevents.Timestamp(since),
		commands, prospect))
}

// PluginReturned is that a town has a plugin again, after it had none since some time.
func (e Environment) PluginReturned(of About, since time.Time) runevents.Alert {
	return e.ofTown(runevents.PluginReturned, of, since, fmt.Sprintf(
		"Town %q has a plugin or console again, after it had none since %s.", of.TownID,
		runevents.Timestamp(since)))
}

// PluginNotNeeded is PluginReturned for a town that is bound to something else now.
func (e Environment) PluginNotNeeded(townID string, since time.Time) runevents.Alert {
	return e.ofTown(runevents.PluginReturned, About{TownID: townID}, since, fmt.Sprintf(
		"Town %q needs no plugin any more: it was removed, or bound to something else. It had none since %s.",
		townID, runevents.Timestamp(since)))
}

// LeftWaiting is that a server did not judge a handoff that waited in it. err keeps its run from
// being cancelled; nil once it is.
func (e Environment) LeftWaiting(run runevents.Identity, townID string, err error) runevents.Alert {
	message := fmt.Sprintf("The server in which a handoff for town %q waited did not judge it: it "+
		"has died, or it could not reach the log. The run was cancelled; nothing was judged, and "+
		"the key is free.", townID)
	if err != nil {
		message = fmt.Sprintf("The server in which a handoff for town %q waited did not judge "+
			"it, and the run cannot be cancelled: %s. It is tried again; handoffctl run cancel "+
			"ends it too.", townID,
			err)
	}
	return e.alert(runevents.RunLeftWaiting, About{RunID: run.RunID, Trace: run.Trace}, message)
}

// DrainTimeout is that commands were still being applied when a pause of the world, or of the town,
// had waited for them for its drain timeout.
func (e Environment) DrainTimeout(signalID, townID string, timeout time.Duration) runevents.Alert {
	what := "the world"
	if townID != "" {
		what = townID
	}
	return e.alert(runevents.PauseDrainTimeout, About{RunID: signalID}, fmt.Sprintf(
		"Commands were still being applied %s after the pause of %s. They go on, and may still "+
			"change their towns: handoffctl status says how many, and town list which towns.",
		timeout, what))
}

// LogLost is that a follower stands still for err, with the effect that it has.
func (e Environment) LogLost(effect string, err error) runevents.Alert {
	return e.alert(runevents.LogLost, About{}, effect+": "+wire.Sentence(err))
}

// CommitDamaged returns the alert that the commit at a log sequence cannot be read, for err.
func (e Environment) CommitDamaged(seq uint64, err error) runevents.Alert {
	alert := e.alert(runevents.CommitDamaged, About{}, fmt.Sprintf("The commit at log sequence "+
		"%d cannot be read: %s Run handoffctl fsck.", seq, wire.Sentence(err)))
	alert.LogSeq = seq
	return alert
}

// StorageFailed is that nothing is stored any more, for err.
func (e Environment) StorageFailed(err error) runevents.Alert {
	return e.alert(runevents.StorageFailed, About{},
		"Nothing is stored and every request that would have to be gets STORAGE_FULL: "+
			strings.TrimSuffix(wire.Sentence(err), ".")+
			". Make room on the disk of the log: the server goes on by itself then.")
}

// StorageRecovered is that something is stored again, after nothing was since some time.
func (e Environment) StorageRecovered(since time.Time) runevents.Alert {
	return e.alert(runevents.StorageRecovered, About{},
		fmt.Sprintf("There is room again; nothing was stored since %s.",
			runevents.Timestamp(since)))
}

func (e Environment) alert(code runevents.AlertCode, of About, message string) runevents.Alert {
	return runevents.Alert{
		Code: code, Severity: code.Severity(), RunID: of.RunID, HandoffID: of.HandoffID,
		TenantID: e.TenantID, ProjectID: e.ProjectID, EnvironmentID: e.EnvironmentID,
		Message: message, Trace: of.Trace,
	}
}

// ofTown returns an alert that has its town, and since when it is so.
func (e Environment) ofTown(
	code runevents.AlertCode, of About, since time.Time, message string,
) runevents.Alert {
	alert := e.alert(code, of, message)
	alert.TownID, alert.Since = of.TownID, runevents.Timestamp(since)
	return alert
}

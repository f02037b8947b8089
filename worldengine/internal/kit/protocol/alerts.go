package protocol

import "worldengine/runevents"

// AlertSpec declares an alert. worldengine/internal/gen writes the table of docs/contracts.md and the texts
// of the console.
type AlertSpec struct {
	Code        runevents.AlertCode
	Severity    runevents.Severity
	Means, Todo string
}

// Alerts returns the declarations of all alerts. The caller must not change them.
func Alerts() []AlertSpec { return alertSpecs }

var alertSpecs = []AlertSpec{
	{runevents.EventBusDeliveryFailed, runevents.P1, "Something could not be brought onto the bus and became a dead letter.",
		"Look at it with `handoffctl deadletter list`; remove the cause, and replay it."},
	{runevents.LogLost, runevents.P1, "The log lost its end, or someone put an older one back: it lacks records that the server " +
		"has committed or read, or that its index had. Commits that were answered may be lost; the alert " +
		"names the last ones. While a running server knows of the loss, changes get `LOG_UNAVAILABLE`, and " +
		"`/readyz` 503.",
		"Put the newer log back; or, to go on without the lost commits, start the server again."},
	{runevents.LogLimited, runevents.P1, "The stream of the log got a limit of bytes, messages or age, as `nats stream edit` can set. NATS " +
		"deletes the oldest records at the limit: towns lose their states and accepted keys.",
		"Remove the limit as the alert says, and run `handoffctl fsck`. No server starts with such a log."},
	{runevents.StorageFailed, runevents.P1, "The disk is full, or refused a write: nothing is stored.",
		"Make room on the disk of the log."},
	{runevents.StorageRecovered, runevents.P3, "There is room on the disk of the log again.",
		"Nothing: the server stores again."},
	{runevents.CommitDamaged, runevents.P1, "A commit of the log cannot be read: its events are missed.",
		"Run `handoffctl fsck`."},
	{runevents.TownDamaged, runevents.P1, "The log lacks a record of a town that it must keep: a key could be accepted again. The " +
		"town answers `TOWN_DAMAGED` until it is repaired.",
		"Run `handoffctl fsck`; on a cluster, `handoffctl fsck --replicas` names the damaged node."},
	{runevents.ReplicaDamaged, runevents.P1, "A node of a NATS cluster lacks messages of the log that another node has. If it led " +
		"the log, an intact node leads it now.",
		"[Empty the node](repair.md#a-node-of-a-cluster); if no node has all messages, empty none."},
	{runevents.TownMended, runevents.P1, "`handoffctl fsck --repair` put a town back to its last readable record.",
		"Compare the town with the game, and put the true state."},
	{runevents.ApplyInDoubt, runevents.P1, "The engine does not know whether the game has applied a command: its handoff failed " +
		"with `PLUGIN_TIMEOUT` or `RCON_IN_DOUBT`, or an operator cancelled its run by force.",
		"Look at the game. If town and game differ, put the true state with `handoffctl town patch` or put. " +
			"A forced run with a result needs nothing: the game answered first."},
	{runevents.PluginDoubleAnswer, runevents.P1, "More answers than requests say that a command was applied to a town: it has a " +
		"second plugin, or its plugin answers a request twice. The first answer counts.",
		"Look in the game whether the command was applied twice, and stop the second plugin."},
	{runevents.PluginLateAnswer, runevents.P1, "A plugin says that it applied a command whose handoff had failed or was " +
		"cancelled: the game has a change that the town lacks.",
		"Put the true state of the town. Give slow commands a longer `--plugin-deadline`."},
	{runevents.PluginStateInvalid, runevents.P2, "A plugin applied a command and reported a state that cannot be the town's; the " +
		"handoff failed.",
		"Put the true state of the town, and repair the plugin."},
	{runevents.PluginAbsent, runevents.P2, "A command found no plugin of its town, or did not reach its console, for " +
		"`--plugin-resend` or its whole attempt. The alert is raised once until the game is there again.",
		"Start the game server, or its plugin. If the town uses RCON, the log of handoffd says why its console is away."},
	{runevents.HistoryFull, runevents.P2, "So many handoffs have failed in one state of a town that its history has no room for one " +
		"more. The keys of those must not be forgotten, so others that would fail, or that a game applies, get " +
		"`HISTORY_FULL`.",
		"Find out why they fail. Put the town with a later day, or raise `history-per-town`."},
	{runevents.HistoryRecovered, runevents.P3, "The history of a town that was full has room again.",
		"Nothing: its handoffs are judged again."},
	{runevents.PluginReturned, runevents.P3, "A town that had no plugin or console has one again, was bound to something else, or was removed.",
		"Nothing: its commands are applied again."},
	{runevents.InvalidTransition, runevents.P2, "An event of a run does not follow from the status of the run; the run is " +
		"INCONSISTENT.",
		"Find the producer that appended it; the run keeps the event and ignores it."},
	{runevents.ProjectorLagHigh, runevents.P2, "Projections are more than 5 s behind the events that others appended.",
		"Look at the load of the servers and the disk."},
	{runevents.NonContiguousFetch, runevents.P2, "A projection got an event that does not follow the one before.",
		"It hints at lag; if it stays, run `handoffctl fsck`."},
	{runevents.CausalViolation, runevents.P3, "An effect stands before its cause.", "Nothing, unless it persists."},
	{runevents.RunLeftWaiting, runevents.P3, "A server died, or lost the log, while a handoff waited in it. Another one " +
		"cancelled its run, or cannot yet.",
		"Nothing, once the run is cancelled: the handoff was not judged, and may be sent again."},
	{runevents.AlertsLost, runevents.P2, "The stream of the world's alerts was removed, and is made anew: its alerts, and who had " +
		"acknowledged them, are lost.",
		"Look at `handoffctl status`, and at the log of handoffd, which has every alert, for what is still wrong."},
	{runevents.PauseDrainTimeout, runevents.P3, "Commands were still being applied when the drain timeout of a pause passed.",
		"Wait for the game, or look why it is slow."},
}

// LookupAlert returns the declaration of a code. An unknown code gets a declaration with the severity P2.
func LookupAlert(c runevents.AlertCode) AlertSpec {
	for i := range alertSpecs {
		if alertSpecs[i].Code == c {
			return alertSpecs[i]
		}
	}
	return AlertSpec{Code: c, Severity: runevents.P2}
}

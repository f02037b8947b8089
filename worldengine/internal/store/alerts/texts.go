package alerts

import (
	"strconv"
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/kit/protocol"
)

// Template is the message of an alert of the engine: the event, its meaning and the remedy. Names in
// braces stand for values; see About. Package runevents has the texts about transitions that the contract refuses.
type Template struct {
	code    runevents.AlertCode
	message string
}

// The messages.
var (
	LateAnswer = Template{runevents.PluginLateAnswer,
		"The plugin of town {town} says that it applied {handoff} after the handoff had failed, or " +
			"was cancelled. The town was left as it was: put its true state."}
	DoubleAnswer = Template{runevents.PluginDoubleAnswer,
		"More answers than requests say that {handoff} was applied to town {town}: is there a " +
			"second plugin for the town? The first answer counts. End one of the two, and put the " +
			"town's true state if it differs."}
	InDoubt = Template{runevents.ApplyInDoubt,
		"It is not known whether {handoff} was applied to town {town}. The town was left as it " +
			"was: look at the game and put its true state. {why}"}
	// CancelledByForce is stored before the cancellation; the cancellation may come too late.
	CancelledByForce = Template{runevents.ApplyInDoubt,
		"{actor} asked to cancel run {run} of town {town} by force. If the run is CANCELLED, its " +
			"game may have applied the command, and the town was left as it was: look at the game " +
			"and put its true state. If the run has a result, that came first, and there is " +
			"nothing to do."}
	StateInvalid = Template{runevents.PluginStateInvalid,
		"The plugin applied {handoff} to town {town} and reported an impossible state. The town " +
			"was left as it was: put its true state. {why}"}
	GameAbsent = Template{runevents.PluginAbsent,
		"Town {town} has had no plugin or console since {since}; commands in hand: {commands}. " +
			"{prospect} Start the game server, or check that its plugin serves this town."}
	GameReturned = Template{runevents.PluginReturned,
		"Town {town} has a plugin or console again, after it had none since {since}."}
	GameNotNeeded = Template{runevents.PluginReturned,
		"Town {town} needs no plugin any more: it was removed, or is not bound to one now. It had " +
			"none since {since}."}
	LeftWaiting = Template{runevents.RunLeftWaiting,
		"A handoff for town {town} waited in a server that died or could not reach the log. It " +
			"was not judged; its run was cancelled, and its key is free."}
	LeftUncancelled = Template{runevents.RunLeftWaiting,
		"A handoff for town {town} waited in a server that died or could not reach the log. It " +
			"was not judged, and its run cannot be cancelled: {error}. The server tries again; " +
			"handoffctl run cancel ends it too."}
	DrainTimeout = Template{runevents.PauseDrainTimeout,
		"Commands were still being applied {timeout} after the pause of {paused}. They go on, and " +
			"may still change their towns: handoffctl status counts them, handoffctl town list " +
			"shows their towns."}
	LogLost     = Template{runevents.LogLost, "{effect}: {error}"}
	LogLimited  = Template{runevents.LogLimited, "{error}"}
	TownDamaged = Template{runevents.TownDamaged,
		"{log} lacks a record of town {town}, or does not deliver it: {why}. A key that the record " +
			"accepted could be accepted again, so requests about it, or about the town, get " +
			"TOWN_DAMAGED. Run handoffctl fsck; on a cluster, handoffctl fsck --replicas."}
	CommitsUndelivered = Template{runevents.CommitDamaged,
		"The log counts {counted} messages and delivers {delivered}: some were changed on the disk. " +
			"Run handoffctl fsck."}
	ReplicaDamaged = Template{runevents.ReplicaDamaged,
		"The node {node} of NATS lacks messages of the log that another node has ({missing}). {effect}. " +
			"{remedy}."}
	CommitDamaged = Template{runevents.CommitDamaged,
		"The commit at log sequence {sequence} cannot be read: {error} Run handoffctl fsck."}
	StorageFailed = Template{runevents.StorageFailed,
		"Nothing can be stored, and requests that change something get STORAGE_FULL: {error}. Make " +
			"room on the disk of the log; then the server goes on by itself."}
	HistoryFull = Template{runevents.HistoryFull,
		"{failed} handoffs have failed in town {town} at epoch {epoch}, and its history has no room " +
			"for another one: the keys of those must not be forgotten. Handoffs that would fail, or that " +
			"a game applies, get HISTORY_FULL: find out why they fail, and put the town with a later day, " +
			"or raise history-per-town with handoffctl world settings set."}
	HistoryRecovered = Template{runevents.HistoryRecovered,
		"The history of town {town} has room again. It was full since {since}."}
	StorageRecovered = Template{runevents.StorageRecovered,
		"There is room again; nothing was stored since {since}."}
	ProjectorLag = Template{runevents.ProjectorLagHigh, "projections are {lag} behind, more than {max}"}
	RunReread    = Template{runevents.NonContiguousFetch,
		"runSeq {runSeq} came when the watermark was {watermark}; the run is read again"}
	Undelivered = Template{runevents.EventBusDeliveryFailed,
		"{subject} cannot be copied to {stream}: {source} {sequence}: {reason}"}
	AlertsLost = Template{runevents.AlertsLost,
		"The stream {stream} was removed, with the alerts that it had; it is made anew. What is still wrong: handoffctl " +
			"status, and the log of handoffd, which has every alert."}
	TownMended = Template{runevents.TownMended,
		"fsck put the town {town} back to log sequence {restored} (day {day}) with the record at {sequence}; " +
			"the messages between them {loss}"}
)

// About has the town, handoff and run of an alert. Members may be zero.
type About struct {
	TownID, HandoffID, RunID string
	Trace                    trace.Context // of the run
}

// Alert returns an alert with the text. values are pairs of a name in braces and its value; about has the values
// of {town}, {handoff} and {run}.
func (t Template) Alert(about About, values ...string) runevents.Alert {
	values = append(values, "{town}", strconv.Quote(about.TownID), "{handoff}", about.HandoffID,
		"{run}", about.RunID)
	return runevents.Alert{
		Code: t.code, Severity: protocol.LookupAlert(t.code).Severity, RunID: about.RunID, HandoffID: about.HandoffID,
		Message: strings.NewReplacer(values...).Replace(t.message), Trace: about.Trace,
	}
}

// EventAlert is Alert about a run event, or about the known members of one.
func (t Template) EventAlert(event *runevents.Record, values ...string) runevents.Alert {
	return runevents.NewAlert(t.code, event, strings.NewReplacer(values...).Replace(t.message))
}

// AlertSince is Alert for a condition that began at since, the value of {since}.
func (t Template) AlertSince(about About, since time.Time, values ...string) runevents.Alert {
	at := runevents.Timestamp(since)
	alert := t.Alert(about, append(values, "{since}", at)...)
	alert.TownID, alert.Since = about.TownID, at
	return alert
}

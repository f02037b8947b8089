package machine

import "cmp"

// Kind is the kind of a record. The set is closed.
type Kind string

// The kinds of a record. Each record has the text of its kind, so the texts never change: "handoff", "control",
// "events", "run" and "mend" are the names of an earlier program. Unless its comment says otherwise, a record is on its
// town's subject, and has the town's state.
const (
	KindConcluded Kind = "handoff" // an accepted handoff: state, result and events together
	// KindPending: the command of an accepted handoff is being applied. The record has the run's
	// first events, the next attempt, or whether a request has arrived.
	KindPending Kind = "pending"
	// KindCancelled: the command of an accepted handoff was cancelled: the last events of its run.
	KindCancelled Kind = "cancelled"
	KindPut       Kind = "put"    // a state that town.put, town.patch or the world file gave
	KindRemove    Kind = "remove" // an operator removed the town; the record holds its last state
	// KindPause: an operator paused or resumed a town, or the world. A pause of the world is on a subject of its own.
	KindPause Kind = "control"
	// KindAsked is a handoff that waits for a person's approval from now on: refused, with its
	// result and events. KindDecided is the signal that approves or denies it.
	KindAsked   Kind = "asked"
	KindDecided Kind = "decided"
	// KindSignal, on the subject of signals, is a signal that changes no town: a refused one, or a cancellation.
	KindSignal Kind = "signal"
	// KindRefused, on the refused subject, is a refused handoff: its result and events.
	KindRefused Kind = "refused"
	// KindAppended and KindRunEvents, on the run's subject, are events of a run: those that others than the engine
	// appended, and those that the engine emits between its commits.
	KindAppended  Kind = "events"
	KindRunEvents Kind = "run"
	// KindRepair puts a town back to its last readable record, if later messages are damaged.
	KindRepair Kind = "mend"
	// KindSettings, on the subject of settings, has all settings of the world, which hold from now on.
	KindSettings Kind = "settings"
)

// KindSpec declares the facts about the records of a kind. The index, the bus and fsck read them.
type KindSpec struct {
	Kind Kind
	// Subject is the subject of the records. On TownSubject they have the town's state. Only a pause of the world
	// is elsewhere: see Record.Subject.
	Subject Subject
	// LeavesState says that the town's state stays as it was before the record.
	LeavesState bool
	// Run says whether the records have a run, with events of it or none.
	Run Presence
	// LeavesRunOpen says that the run goes on after the record, unless its events end the run.
	LeavesRunOpen bool
	// Foreign says that another producer than the engine emitted the events.
	Foreign bool
	// Signal says that the run is an operator's signal.
	Signal bool
	// HasResult says that a handoff is judged: the record has the handoff and its result.
	HasResult bool
	// ConsumesKey says that the handoff is accepted, so that its key keeps the result.
	ConsumesKey bool
	// EndsCommand says that the record may end the command that a game applies.
	EndsCommand bool
	// Approval says that a proposal waits for a person's approval from now on, or that a person decided about it.
	Approval bool
	// Cause is the name of the kind for clients, if it is another one.
	Cause string
}

var kindSpecs = []KindSpec{
	{Kind: KindConcluded, HasResult: true, ConsumesKey: true, EndsCommand: true},
	{Kind: KindPending, LeavesState: true, Run: Sometimes, LeavesRunOpen: true},
	{Kind: KindCancelled, LeavesState: true, EndsCommand: true},
	{Kind: KindPut, Run: Never},
	{Kind: KindRemove, Run: Never},
	{Kind: KindPause, LeavesState: true, Signal: true},
	{Kind: KindAsked, LeavesState: true, HasResult: true, Approval: true},
	{Kind: KindDecided, LeavesState: true, Signal: true, Approval: true},
	{Kind: KindSignal, Subject: SignalSubject, Signal: true},
	{Kind: KindRefused, Subject: RefusedSubject, HasResult: true},
	{Kind: KindAppended, Subject: RunSubject, LeavesRunOpen: true, Foreign: true, Cause: "appended"},
	{Kind: KindRunEvents, Subject: RunSubject, LeavesRunOpen: true, Cause: "waiting"},
	{Kind: KindRepair, Run: Never},
	{Kind: KindSettings, Subject: SettingsSubject, Run: Never},
}

// Subject is the subject of the log that a record goes to.
type Subject int

const (
	TownSubject    Subject = iota // the town's own, guarded by its last message
	RefusedSubject                // refused runs of the town, or of unknown towns
	SignalSubject                 // signals that change no town
	RunSubject                    // the run's own, guarded by its tail
	PauseSubject                  // pauses of the world
	SettingsSubject
)

// Presence says which records of a kind have a part.
type Presence int

const (
	Always Presence = iota
	Sometimes
	Never
)

// specs finds a declaration by its kind.
var specs = func() map[Kind]KindSpec {
	byKind := make(map[Kind]KindSpec, len(kindSpecs))
	for _, spec := range kindSpecs {
		byKind[spec.Kind] = spec
	}
	return byKind
}()

// Kinds returns the known kinds.
func Kinds() (known []Kind) {
	for _, spec := range kindSpecs {
		known = append(known, spec.Kind)
	}
	return known
}

// Spec returns the declaration of a kind; the zero KindSpec if the kind is unknown.
func (k Kind) Spec() KindSpec { return specs[k] }

// Cause returns the name of a kind in histories and commit messages.
func (k Kind) Cause() string { return cmp.Or(specs[k].Cause, string(k)) }

// Known reports whether this program has such a kind.
func (k Kind) Known() bool { return specs[k].Kind != "" }

// Subject returns the subject of the record.
func (rec *Record) Subject() Subject {
	if rec.Kind == KindPause && rec.TownID == "" {
		return PauseSubject
	}
	return rec.Kind.Spec().Subject
}

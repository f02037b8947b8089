// Package failpoint names the moments at which the end of an engine's process is worth a test:
// before and after each step that other processes can see. Outside such tests a point does nothing.
package failpoint

// Point is a moment in the life of a handoff: one word, as tests write it to a file.
type Point string

// The points, in the order of a handoff on its way.
const (
	// Judged: it is judged, and nothing is stored.
	Judged Point = "judged"
	// Committed: an executed, failed or refused handoff is stored, and the client has no answer.
	Committed Point = "committed"
	// Accepted: the first commit of such a command is stored, and no plugin or console is asked.
	Accepted Point = "accepted"
	// PluginAsked: the plugin is asked, and has not answered.
	PluginAsked Point = "asked"
	// Answered: the plugin has answered definitely, and nothing follows from it yet.
	Answered Point = "answered"
	// NextAttempt: another logical attempt is stored, and the events of the run do not have it.
	NextAttempt Point = "next-attempt"
	// Recorded: the events of the run have the attempts.
	Recorded Point = "recorded"
	// RunClosing: the run is closed to others, and its end is not stored.
	RunClosing Point = "run-closing"
	// Concluded: the second commit of such a command is stored, and the client has no answer.
	Concluded Point = "concluded"
)

// Cancelled: the cancellation of a command that a game is to apply is stored, and neither the operator nor the client
// has an answer. Before it, the run is closed (RunClosing).
const Cancelled Point = "cancelled"

// Cancelling returns the points of a cancellation, in their order.
func Cancelling() []Point { return []Point{RunClosing, Cancelled} }

// Points returns the points of a handoff that is not cancelled, in their order.
func Points() []Point {
	return []Point{
		Judged, Committed, Accepted, PluginAsked, Answered, NextAttempt, Recorded, RunClosing, Concluded,
	}
}

// Reached is called at each point, from the goroutine that reaches it. It is nil but in tests,
// which set it before anything is started.
var Reached func(Point)

// Hit reports that the program has come to p.
func Hit(p Point) {
	if Reached != nil {
		Reached(p)
	}
}

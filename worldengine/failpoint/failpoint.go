// Package failpoint names the moments at which the end of an engine's process is worth a test: before
// and after each step that other processes can see. Outside such tests a point does nothing.
package failpoint

// Point is a moment in the life of a handoff.
type Point string

// The points, in the order in which a handoff passes them.
const (
	// Judged: it is judged, and nothing is stored.
	Judged Point = "judged"
	// Committed: an executed, failed or refused handoff is stored, and nobody is told.
	Committed Point = "committed"
	// Marked: the mark of a command that is to be given away is stored, and the handoff is not.
	Marked Point = "marked"
	// Accepted: the first commit of a command that is given away is stored, and nobody is asked.
	Accepted Point = "accepted"
	// Asked: the plugin is asked, and has not answered.
	Asked Point = "asked"
	// Answered: the plugin has answered definitely, and nothing follows from it yet.
	Answered Point = "answered"
	// Again: another logical attempt is stored, and its run does not tell.
	Again Point = "again"
	// Told: the run tells of the attempts.
	Told Point = "told"
	// Closing: the run is closed to others, and its end is not stored.
	Closing Point = "closing"
	// Concluded: the second commit of a command that was given away is stored, and nobody is told.
	Concluded Point = "concluded"
)

// Points returns all points, in their order.
func Points() []Point {
	return []Point{Judged, Committed, Marked, Accepted, Asked, Answered, Again, Told, Closing, Concluded}
}

// Reached is called at each point, from the goroutine that reaches it. It is nil but in tests, which set
// it before anything is started.
var Reached func(Point)

// At says that p is reached.
func At(p Point) {
	if Reached != nil {
		Reached(p)
	}
}

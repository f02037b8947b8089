// Package waiting records the runs of handoffs that wait for their town: behind a command that a
// game applies, or for the end of a pause. Such a run has its own subject of the log before its
// handoff is judged, so that operators see it and can cancel it.
//
// A handoff waits in the memory of the writer. At its start a writer ends the runs that a dead one
// left (Store.Reap).
package waiting

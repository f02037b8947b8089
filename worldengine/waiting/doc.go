// Package waiting records the runs of handoffs that wait for their town: behind a command that a
// game applies, or for the end of a pause. Such a run stands on its own subject of the log before
// its handoff is judged, so that operators see it and can cancel it.
//
// A handoff waits in the memory of the writer. The runs that a writer leaves behind when it dies are
// ended at the start of the next one (Store.Reap).
package waiting

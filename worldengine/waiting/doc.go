// Package waiting records the runs of handoffs that wait for their town: behind a command that a
// game applies, or for the end of a pause. Such a run stands on its own subject of the log before
// its handoff is judged, so that operators see it and can cancel it.
//
// A handoff waits in the memory of one server. What that server leaves behind when it dies, another
// one, or itself after its start, ends: before runs are recorded, the server puts their ids into
// the index of the world, and renews the entry as long as they wait (Store.Hold). Store.Reap ends
// the runs of entries that are not renewed.
package waiting

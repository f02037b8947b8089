// Package runs reads, lists and appends the runs of a world.
//
// Runs are found by the index and read from the commit log; a reader waits until the index has
// followed the log. Appends of other writers are committed to the log, on the subject of their run,
// guarded as a town's history is (RunEvents v2, append authority).
package runs

package fsck

import "slices"

// The meaning of the findings of a class, and the operator's remedy.
const (
	adviceLog = "findings in the log: its bytes were changed, or another program wrote to it. " +
		"A repair changes no message of the log, so they stay; a town whose last record can be " +
		"read is served from that. Copy the data directory, look at the disk and at who may " +
		"publish to NATS, and read docs/reliability.md"
	adviceLeftWaiting = "runs that wait for ever: the handoff waited in a server that has ended, " +
		"its client is gone and its key is free. End each with handoffctl run cancel; a repair " +
		"leaves them alone"
	adviceIndex = "findings in the index: the file of a server's index differs from the log, which " +
		"alone counts. Stop the server, delete the directory that --index names, and start the " +
		"server: it builds the index from the log"
)

// Advice returns a text for each class of the report's findings, with its meaning and remedy: in
// the log, runs that wait for ever, and in the index. Towns that answer TOWN_DAMAGED have their
// own: see DamagedTown.
func (r *Report) Advice() (all []string) {
	for _, class := range []struct {
		kind   Kind
		advice string
	}{{"", adviceLog}, {LeftWaiting, adviceLeftWaiting}, {IndexDiffers, adviceIndex}} {
		if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind == class.kind }) {
			all = append(all, class.advice)
		}
	}
	return all
}

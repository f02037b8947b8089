package fsck

import "worldengine/worldengine/wire"

// What the findings of a class mean, and what to do about them.
const (
	adviceLog = "findings in the log: its bytes were changed, or another program wrote to it. " +
		"A repair changes no message of the log, so they stay; a town whose last record can be " +
		"read is served from that. Copy the data directory, look at the disk and at who may " +
		"publish to NATS, and read docs/reliability.md"
	adviceDerived = "findings in receipts or run events: they differ from what the log derives, so " +
		"a duplicate may be judged again, and readers of runs may miss events. Run handoffctl fsck " +
		"--repair: it makes them again from the log, and removes those of commits that the log lost"
	adviceDeadLetter = "dead letters: a follower gave these messages up, and a repair leaves them " +
		"alone. Mend the cause, and run handoffctl deadletter replay (GOT is the letter's subject; " +
		"deadletter list has its number)"
	adviceLeftWaiting = "runs that wait for ever: the handoff waited in a server that has ended, " +
		"its client is gone and its key is free. End each with handoffctl run cancel; a repair " +
		"leaves them alone"
)

// Advice returns what the findings that the report holds mean and what to do, a text for each class
// of them: in the log, in derived streams, dead letters, runs that wait for ever. Towns that answer
// TOWN_DAMAGED have advice of their own: see DamagedTown.
func (r *Report) Advice() (all []string) {
	classes := map[string]bool{}
	for i := range r.Findings {
		classes[r.class(&r.Findings[i])] = true
	}
	for _, advice := range []string{adviceLog, adviceDerived, adviceDeadLetter, adviceLeftWaiting} {
		if classes[advice] {
			all = append(all, advice)
		}
	}
	return all
}

func (r *Report) class(f *Finding) string {
	switch {
	case f.Kind == DeadLettered:
		return adviceDeadLetter
	case f.Kind == LeftWaiting:
		return adviceLeftWaiting
	case f.Stream == wire.LogStream(r.World):
		return adviceLog
	}
	return adviceDerived
}

package runs

import (
	"sync"
	"time"
)

const (
	// MaxUndigested is how many appended events may wait for the readers of the log. The readers
	// read more in a second.
	MaxUndigested = 4_096
	// undigestedFor bounds the time that an append counts, so that stalled readers slow appends
	// down but do not stop them.
	undigestedFor = 10 * time.Second
)

// backlog bounds the events that producers have appended, or are about to, and that the readers of
// the log have not read. Towns share it as they share queue.Slots: a town may have as many events
// as there is room left. It is safe for concurrent use.
type backlog struct {
	digested func() uint64 // returns the log sequence up to which the readers have read

	mu     sync.Mutex
	towns  map[string]int // events by town, never 0
	events int            // of all towns
	stored []undigested   // in the order of storing
}

type undigested struct {
	town   string
	events int
	seq    uint64
	since  time.Time
}

// take makes room for events of a town, and reports whether there is any. The caller has to call
// done.
func (b *backlog) take(town string, events int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweep()
	if room := MaxUndigested - b.events; b.towns[town] >= room {
		return false
	}
	b.add(town, events)
	return true
}

// done follows take: the events are stored at a log sequence, or with 0 not at all.
func (b *backlog) done(town string, events int, seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if seq == 0 {
		b.add(town, -events)
		return
	}
	b.stored = append(b.stored, undigested{town, events, seq, time.Now()})
}

// sweep gives back the room of the appends that the readers have read, or that have counted long
// enough.
func (b *backlog) sweep() {
	upTo, n := b.digested(), 0
	for _, u := range b.stored {
		if u.seq > upTo && time.Since(u.since) < undigestedFor {
			break
		}
		b.add(u.town, -u.events)
		n++
	}
	b.stored = b.stored[n:]
}

func (b *backlog) add(town string, events int) {
	b.events += events
	if b.towns[town] += events; b.towns[town] == 0 {
		delete(b.towns, town)
	}
}

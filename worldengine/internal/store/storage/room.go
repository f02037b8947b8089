// Package storage watches the disk of a world, so that the engine stops storing before it is full,
// and goes on when there is room again.
//
// After a full disk an embedded NATS server stores nothing more in the affected stream until it
// restarts. So a Room keeps a part of the disk free: below it the engine refuses to store. If NATS
// fails to write all the same, the Room has failed, and only a restart helps.
package storage

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/messages"
)

// ErrFull: there is too little room on the disk. Nothing is stored until there is more.
var ErrFull = errors.New("storage: the disk is full")

// ErrFailed: the disk refused a write. Nothing can be stored until the server restarts.
var ErrFailed = errors.New("storage: a write to the disk failed")

// Bounds of the room that is kept free by default: a fiftieth of the disk.
const (
	leastKept = 1 << 20
	mostKept  = 256 << 20
	// mostMore bounds the extra room that must be free before something is stored again.
	mostMore = 64 << 20
)

// lookEvery is how long the last reading of the disk counts. A server writes some 10 MiB within it
// at most.
const lookEvery = 20 * time.Millisecond

// Room watches the free room of one directory. It is safe for concurrent use.
type Room struct {
	dir    string
	look   func(dir string) (free, total uint64, err error)
	failed chan struct{} // closed with the first call of Fail

	mu     sync.Mutex
	looked time.Time
	state  messages.Disk
	full   bool
	why    string // of Fail
}

// Open returns the Room of an existing directory. keep is the number of bytes to keep free; 0 for a
// fiftieth of the disk, at least 1 MiB and at most 256 MiB.
func Open(dir string, keep int64) (*Room, error) { return open(dir, keep, platform.DiskSpace) }

func open(
	dir string, keep int64, look func(string) (free, total uint64, err error),
) (*Room, error) {
	_, total, err := look(dir)
	if err != nil {
		return nil, fmt.Errorf("storage: room on the disk of %s: %w", dir, err)
	}
	kept := uint64(keep)
	if keep == 0 {
		kept = min(max(total/50, leastKept), mostKept)
	}
	if kept >= total && total > 0 { // a file system without blocks does not say
		return nil, fmt.Errorf("storage: the disk of %s has %s in all, and %s of it are to stay "+
			"free (--min-free-disk): use a larger disk, or keep less free", dir,
			Size(total), Size(kept))
	}
	return &Room{dir: dir, look: look, failed: make(chan struct{}), state: messages.Disk{Keep: kept}}, nil
}

// State returns the last reading of the disk.
func (r *Room) State() messages.Disk {
	_ = r.Check()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Check returns nil if something may be stored, else ErrFull or ErrFailed with the reason. After
// ErrFull a little more than Keep must be free. It is cheap: it reads the disk every 20 ms at most.
func (r *Room) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.looked) >= lookEvery {
		if free, total, err := r.look(r.dir); err == nil { // else the last reading holds
			r.state.Free, r.state.Total, r.looked = free, total, now
			keep := r.state.Keep
			r.full = free < keep || r.full && free < keep+min(keep/4, mostMore)
		}
	}
	if r.why != "" {
		return fmt.Errorf("%w: %s", ErrFailed, r.why)
	}
	if r.full {
		return fmt.Errorf("%w: %s has %s free of %s, and %s are to stay free: make room, or set "+
			"less with --min-free-disk", ErrFull, r.dir, Size(r.state.Free),
			Size(r.state.Total), Size(r.state.Keep))
	}
	return nil
}

// Fail records a failed write, and its reason.
func (r *Room) Fail(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" {
		r.why = why
		close(r.failed)
	}
}

// Failed returns a channel that is closed once a write has failed.
func (r *Room) Failed() <-chan struct{} { return r.failed }

// Full reports whether there is too little room, even after a failed write.
func (r *Room) Full() bool {
	_ = r.Check()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full
}

// Size formats a number of bytes for people.
func Size(bytes uint64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d B", bytes)
	}
	value, exponent := float64(bytes)/unit, 0
	for value >= unit && exponent < len("KMGTPE")-1 {
		value /= unit
		exponent++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTPE"[exponent])
}

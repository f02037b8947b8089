// Package diskspace watches the free space of a disk, so that an engine stops storing before the disk is full,
// and goes on when there is room again.
//
// After a full disk an embedded NATS server stores nothing more in the affected stream until it
// restarts. So a Watch keeps a part of the disk free: below it the engine refuses to store. If NATS
// fails to write all the same, the Watch has failed, and only a restart helps.
package diskspace

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/messages"
)

// ErrFull: there is too little room on the disk. Nothing is stored until there is more.
var ErrFull = errors.New("the disk is full")

// ErrFailed: the disk refused a write. Nothing can be stored until the server restarts.
var ErrFailed = errors.New("a write to the disk failed")

// Bounds of the room that is kept free by default: a fiftieth of the disk.
const (
	minKept = 1 << 20
	maxKept = 256 << 20
	// maxMore bounds the extra room that must be free before something is stored again.
	maxMore = 64 << 20
)

// lookInterval is how long the last reading of the disk counts. A server writes some 10 MiB within it
// at most.
const lookInterval = 20 * time.Millisecond

// Watch knows the free space of the disk of one directory. It is safe for concurrent use.
type Watch struct {
	dir       string
	readSpace func(dir string) (free, total uint64, err error)
	failed    chan struct{} // closed with the first call of Fail

	mu     sync.Mutex
	readAt time.Time
	state  messages.Disk
	full   bool
	why    string // of Fail
}

// Open returns the Watch of an existing directory. keep is the number of bytes to keep free; 0 for a
// fiftieth of the disk, at least 1 MiB and at most 256 MiB.
func Open(dir string, keep int64) (*Watch, error) { return open(dir, keep, platform.DiskSpace) }

func open(
	dir string, keep int64, look func(string) (free, total uint64, err error),
) (*Watch, error) {
	_, total, err := look(dir)
	if err != nil {
		return nil, fmt.Errorf("room on the disk of %s: %w", dir, err)
	}
	kept := uint64(keep)
	if keep == 0 {
		kept = min(max(total/50, minKept), maxKept)
	}
	if kept >= total && total > 0 { // a file system without blocks does not say
		return nil, fmt.Errorf("the disk of %s has %s in all, and %s of it are to stay "+
			"free (--min-free-disk): use a larger disk, or keep less free", dir,
			Size(total), Size(kept))
	}
	return &Watch{dir: dir, readSpace: look, failed: make(chan struct{}), state: messages.Disk{Keep: kept}}, nil
}

// State returns the last reading of the disk.
func (w *Watch) State() messages.Disk {
	_ = w.Check()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Check returns nil if something may be stored, else ErrFull or ErrFailed with the reason. After
// ErrFull a little more than Keep must be free. It is cheap: it reads the disk every 20 ms at most.
func (w *Watch) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.readAt) >= lookInterval {
		if free, total, err := w.readSpace(w.dir); err == nil { // else the last reading holds
			w.state.Free, w.state.Total, w.readAt = free, total, now
			keep := w.state.Keep
			w.full = free < keep || w.full && free < keep+min(keep/4, maxMore)
		}
	}
	if w.why != "" {
		return fmt.Errorf("%w: %s", ErrFailed, w.why)
	}
	if w.full {
		return fmt.Errorf("%w: %s has %s free of %s, and %s are to stay free: make room, or set "+
			"less with --min-free-disk", ErrFull, w.dir, Size(w.state.Free),
			Size(w.state.Total), Size(w.state.Keep))
	}
	return nil
}

// Fail records a failed write, and its reason.
func (w *Watch) Fail(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why == "" {
		w.why = why
		close(w.failed)
	}
}

// Failed returns a channel that is closed once a write has failed.
func (w *Watch) Failed() <-chan struct{} { return w.failed }

// Full reports whether there is too little room, even after a failed write.
func (w *Watch) Full() bool {
	_ = w.Check()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full
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

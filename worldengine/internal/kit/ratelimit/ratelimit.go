// Package ratelimit bounds how often something is done for each kind of cause, such as lines in a
// log, so that no client can have it done without end. It counts how often it was left out.
package ratelimit

import (
	"maps"
	"sync"
	"time"
)

// maxKinds bounds the kinds that are counted apart; all others are one.
const maxKinds = 256

// Limit allows each kind a number of times within a period. It is safe for concurrent use.
type Limit struct {
	limit  int
	period time.Duration

	mu    sync.Mutex
	kinds map[string]*kind
}

type kind struct {
	started       time.Time
	done, leftOut int
}

// New returns a limit that allows each kind most times within a period.
func New(limit int, period time.Duration) *Limit {
	return &Limit{limit: limit, period: period, kinds: map[string]*kind{}}
}

// May reports whether something of a kind may be done now, and how many were left out since the
// last one.
func (l *Limit) May(name string, now time.Time) (may bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds[name] == nil && len(l.kinds) >= maxKinds {
		maps.DeleteFunc(l.kinds, func(_ string, k *kind) bool {
			return k.leftOut == 0 && now.Sub(k.started) >= l.period // nothing is left to report
		})
		if len(l.kinds) >= maxKinds {
			name = "" // all others
		}
	}
	k := l.kinds[name]
	if k == nil {
		k = new(kind)
		l.kinds[name] = k
	}
	if now.Sub(k.started) >= l.period {
		k.started, k.done = now, 0
	}
	if k.done >= l.limit {
		k.leftOut++
		return false, 0
	}
	k.done++
	leftOut, k.leftOut = k.leftOut, 0
	return true, leftOut
}

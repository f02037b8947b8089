package plugin

import (
	"sync"
	"time"
)

// Memory remembers the outcomes of commands. It is safe for concurrent use.
type Memory interface {
	// Get returns the last record of an id. It is called for every request, on the receiving
	// goroutine, so it must not wait for a disk.
	Get(applyID string) (Record, bool)
	// Put replaces the record of an id. If it returns nil, r survives the end of the process. If it
	// returns an error, r is not remembered.
	Put(r Record) error
}

// Record is a command's state.
type Record struct {
	ApplyID string `json:"applyId"`
	TownID  string `json:"townId"`
	// Attempt is the logical attempt in which the command was last begun or answered.
	Attempt int64     `json:"attempt"`
	At      time.Time `json:"at"`
	// Answer is the outcome. It is nil while the command is begun or in doubt, and Busy if the
	// command turned out not to be begun.
	Answer *Answer `json:"answer,omitzero"`
}

// Unfinished reports whether the command is in doubt: it was begun, and its outcome is not known.
func (r Record) Unfinished() bool { return r.Answer == nil }

// AnswerTo returns the remembered answer to a request of a logical attempt, if there is one. A
// retryable refusal answers requests of its own attempt only.
func (r Record) AnswerTo(attempt int64) (Answer, bool) {
	switch {
	case r.Unfinished() || !r.Answer.Definite():
		return Answer{}, false
	case retryable(r.Answer) && attempt != r.Attempt:
		return Answer{}, false
	}
	return *r.Answer, true
}

func retryable(a *Answer) bool { return a.Status == Refused && a.Retryable }

// Defaults of a memory.
const (
	// DefaultMaxRecords is the number of commands in a memory.
	DefaultMaxRecords = 20_000
	// DefaultRetention is longer than an engine may be away before it asks again.
	DefaultRetention = 30 * 24 * time.Hour
)

// NewVolatileMemory returns a Memory that does not survive the process, for tests and toys.
func NewVolatileMemory() Memory {
	return volatile{newIndex(DefaultMaxRecords, DefaultRetention)}
}

type volatile struct{ *index }

// Put implements Memory.
func (v volatile) Put(r Record) error {
	v.put(r, r.At)
	return nil
}

// index has the records of a memory, and forgets the oldest beyond its bounds. It is safe for
// concurrent use.
type index struct {
	capacity  int
	retention time.Duration

	mu      sync.RWMutex
	records map[string]Record
	order   []string // the ids, in the order in which they were first put
}

func newIndex(most int, retention time.Duration) *index {
	return &index{capacity: most, retention: retention, records: map[string]Record{}}
}

// Get implements Memory.
func (x *index) Get(applyID string) (Record, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r, ok := x.records[applyID]
	return r, ok
}

// put adds a record, and drops records that are too old or too many. A command in doubt is dropped
// only if it is too old.
func (x *index) put(r Record, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, known := x.records[r.ApplyID]; !known {
		x.order = append(x.order, r.ApplyID)
	}
	x.records[r.ApplyID] = r
	for range len(x.order) {
		oldest := x.records[x.order[0]]
		expired := now.Sub(oldest.At) > x.retention
		if !expired && len(x.records) <= x.capacity {
			return
		}
		x.order = x.order[1:]
		if oldest.Unfinished() && !expired {
			x.order = append(x.order, oldest.ApplyID)
			continue
		}
		delete(x.records, oldest.ApplyID)
	}
}

// sorted returns the records in the order of the first Put of each id.
func (x *index) sorted() []Record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	records := make([]Record, 0, len(x.order))
	for _, id := range x.order {
		records = append(records, x.records[id])
	}
	return records
}

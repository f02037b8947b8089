// Package recent remembers the latest entries, up to a limit.
package recent

import "sync"

// Map remembers the latest entries, up to its limit. It is safe for concurrent use.
type Map[K comparable, V any] struct {
	limit int

	mu      sync.Mutex
	entries map[K]V
	order   []K // the keys in their order; with limit of them a ring
	next    int // the index of the oldest key
}

// NewMap returns a map that remembers at most limit entries, which must be at least 1.
func NewMap[K comparable, V any](limit int) *Map[K, V] {
	return &Map[K, V]{limit: limit, entries: map[K]V{}}
}

// Add remembers value under key, and forgets the oldest entry beyond the limit. It reports whether
// key is new; a known key keeps its value and its age.
func (m *Map[K, V]) Add(key K, value V) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.entries[key]; known {
		return false
	}
	m.entries[key] = value
	if len(m.order) < m.limit {
		m.order = append(m.order, key)
		return true
	}
	delete(m.entries, m.order[m.next])
	m.order[m.next] = key
	m.next = (m.next + 1) % m.limit
	return true
}

// Get returns the value of key, and whether the map has it.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, known := m.entries[key]
	return value, known
}

package index

import "math/bits"

// table finds row or run numbers by a hash: open addressing, without pointers. The hash of a number
// is read from its row. Two numbers with the same hash share one slot.
type table struct {
	slots []uint32 // a power of two; 0 is free
	count int
	hash  func(n uint32) uint64
}

// newTable returns a table with room for some numbers.
func newTable(room int64, hash func(n uint32) uint64) table {
	size := 1 << max(10, bits.Len64(uint64(room)*3/2))
	return table{slots: make([]uint32, size), hash: hash}
}

// get returns the number that has a hash, or 0.
func (t *table) get(hash uint64) uint32 { return *t.slot(hash) }

// put adds n, or puts it in the place of a number with the same hash.
func (t *table) put(n uint32) {
	slot := t.slot(t.hash(n))
	if *slot == 0 {
		t.count++
	}
	*slot = n
	if 3*t.count > 2*len(t.slots) {
		t.grow()
	}
}

// slot returns the slot of a hash, or the free one that it would get.
func (t *table) slot(hash uint64) *uint32 {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if n := t.slots[i]; n == 0 || t.hash(n) == hash {
			return &t.slots[i]
		}
	}
}

func (t *table) grow() {
	old := t.slots
	t.slots = make([]uint32, 2*len(old))
	for _, n := range old {
		if n != 0 {
			*t.slot(t.hash(n)) = n
		}
	}
}

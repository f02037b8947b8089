package mcp

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/platform"
)

// OpenProposals are the proposals whose result a host may not have. The same arguments mean the same handoff
// until the result was delivered: a model that repeats a proposal after a time-out would otherwise have it
// carried out twice. A directory keeps the handoffs for the next session; the newest maxOpen are in
// memory too. It is safe for concurrent use.
type OpenProposals struct {
	dir   string      // "" for none
	warn  func(error) // is called once if dir cannot be used
	mu    sync.Mutex
	open  map[string]*handoff.Handoff // by name
	order []string                    // the names in open, the oldest first
}

// maxOpen bounds the open proposals in memory, some 2 KB each.
const maxOpen = 1000

// NewOpenProposals returns the open proposals in a directory; with "" they are in memory alone. warn is
// called once if the directory cannot be used.
func NewOpenProposals(dir string, warn func(error)) *OpenProposals {
	var once sync.Once
	return &OpenProposals{dir: dir, open: map[string]*handoff.Handoff{},
		warn: func(err error) { once.Do(func() { warn(err) }) }}
}

// find returns the open handoff with a name, or nil.
func (o *OpenProposals) find(name string) *handoff.Handoff {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h := o.open[name]; h != nil || o.dir == "" {
		return h
	}
	data, err := os.ReadFile(o.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	h, invalid := handoff.Parse(data, schemas.Limits{})
	if err = cmp.Or(err, invalid); err != nil {
		o.warn(err)
		return nil
	}
	o.remember(name, h)
	return h
}

// remember keeps a handoff in memory, and forgets the oldest one beyond maxOpen. o.mu is locked.
func (o *OpenProposals) remember(name string, h *handoff.Handoff) {
	if o.open[name] == nil {
		o.order = append(o.order, name)
	}
	o.open[name] = h
	if len(o.order) > maxOpen {
		delete(o.open, o.order[0])
		o.order = o.order[1:]
	}
}

// add adds a handoff before it is sent.
func (o *OpenProposals) add(name string, h *handoff.Handoff) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remember(name, h)
	if o.dir == "" {
		return
	}
	data, err := h.MarshalWire()
	if err == nil {
		err = os.MkdirAll(o.dir, 0o700)
	}
	if err == nil {
		err = platform.ReplaceFile(o.path(name), data)
	}
	if err != nil {
		o.warn(fmt.Errorf("a proposal is not kept for the next session: %w", err))
	}
}

// remove removes a handoff whose result was delivered.
func (o *OpenProposals) remove(name string, h *handoff.Handoff) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[name] != h {
		return // another one is open by now
	}
	delete(o.open, name)
	o.order = slices.DeleteFunc(o.order, func(other string) bool { return other == name })
	if o.dir == "" {
		return
	}
	if err := os.Remove(o.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.warn(err)
	}
}

func (o *OpenProposals) path(name string) string { return filepath.Join(o.dir, name+".json") }

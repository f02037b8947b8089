package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"worldengine/handoff"
	"worldengine/schemas"
)

// openProposals are the proposals of an actor whose result the host may not have. The same arguments mean
// the same handoff until the result was delivered: a model that repeats a proposal after a time-out would
// else have it carried out twice. A directory keeps the handoffs for the next session.
type openProposals struct {
	dir  string      // "" for none
	warn func(error) // is called once if dir cannot be used
	mu   sync.Mutex
	open map[string]*handoff.Handoff // by name
}

// openOf returns the open proposals in a directory; with "" in the user's cache.
func openOf(dir string, warn func(error)) *openProposals {
	o := &openProposals{dir: dir, open: map[string]*handoff.Handoff{}}
	var once sync.Once
	o.warn = func(err error) {
		once.Do(func() { warn(err) })
	}
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			o.warn(err)
			return o
		}
		o.dir = filepath.Join(cache, "handoffctl", "proposals")
	}
	return o
}

// find returns the open handoff with a name, or nil.
func (o *openProposals) find(name string) *handoff.Handoff {
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
	o.open[name] = h
	return h
}

// add adds a handoff before it is sent.
func (o *openProposals) add(name string, h *handoff.Handoff) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[name] = h
	if o.dir == "" {
		return
	}
	data, err := h.MarshalWire()
	if err == nil {
		err = os.MkdirAll(o.dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(o.path(name)+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(o.path(name)+".new", o.path(name))
	}
	if err != nil {
		o.warn(fmt.Errorf("a proposal is not kept for the next session: %w", err))
	}
}

// remove removes a handoff whose result was delivered.
func (o *openProposals) remove(name string, h *handoff.Handoff) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[name] != h {
		return // another one is open by now
	}
	delete(o.open, name)
	if o.dir == "" {
		return
	}
	if err := os.Remove(o.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.warn(err)
	}
}

func (o *openProposals) path(name string) string { return filepath.Join(o.dir, name+".json") }

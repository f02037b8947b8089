//go:build linux

package powertest

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const pageSize = 4096

// Disk is a file system. It is safe for concurrent use.
type Disk struct {
	// SyncTakes is how long a sync takes. A sync by a process that is killed meanwhile brings nothing to
	// the disk.
	SyncTakes time.Duration

	fuse.RawFileSystem
	server *fuse.Server

	mu      sync.Mutex
	off     bool // the power is gone
	nodes   map[uint64]*node
	journal []func() // the changes of names that are not on the disk yet, in their order
	syncs   int
}

// node is a file or a directory: as programs see it, and as it is on the disk.
type node struct {
	id      uint64
	mode    uint32
	links   uint32
	changed time.Time

	names, namesOnDisk map[string]*node // of a directory
	data, onDisk       []byte           // of a file
	dirty              map[int]struct{} // pages in which data and onDisk differ
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	d := &Disk{RawFileSystem: fuse.NewDefaultRawFileSystem(), nodes: map[uint64]*node{}}
	d.newNode(syscall.S_IFDIR | 0o755)
	return d
}

func (d *Disk) newNode(mode uint32) *node {
	n := &node{id: uint64(len(d.nodes)) + 1, mode: mode, links: 1, changed: time.Now()}
	if mode&syscall.S_IFDIR != 0 {
		n.names, n.namesOnDisk = map[string]*node{}, map[string]*node{}
	} else {
		n.dirty = map[int]struct{}{}
	}
	d.nodes[n.id] = n
	return n
}

// Mount mounts the disk on a directory. It returns an error if FUSE is missing, or the user is not
// root.
func (d *Disk) Mount(dir string) (err error) {
	d.server, err = fuse.NewServer(d, dir, &fuse.MountOptions{
		DirectMountStrict: true, FsName: "powertest", Name: "powertest", MaxWrite: 1 << 20,
		DisableXAttrs: true, DisableReadDirPlus: true,
	})
	if err != nil {
		return err
	}
	go d.server.Serve()
	return d.server.WaitMount()
}

// Unmount ends the mount. A process that still uses the disk has none from then on.
func (d *Disk) Unmount() error {
	err := d.server.Unmount()
	for try := 0; errors.Is(err, syscall.EBUSY) && try < 100; try++ {
		time.Sleep(10 * time.Millisecond) // the kernel closes the files of a killed process
		err = d.server.Unmount()
	}
	return err
}

// Syncs returns how often something was synced.
func (d *Disk) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// sync brings all changes of names, and the content of n, to the disk.
func (d *Disk) sync(n *node) {
	d.syncs++
	d.commit(len(d.journal))
	n.write(slices.Collect(maps.Keys(n.dirty)), len(n.data))
	clear(n.dirty)
}

// commit brings the first changes of names to the disk.
func (d *Disk) commit(changes int) {
	for _, change := range d.journal[:changes] {
		change()
	}
	d.journal = d.journal[changes:]
}

// write brings pages of a file, which then has a size, to the disk.
func (n *node) write(pages []int, size int) {
	if size > len(n.onDisk) {
		n.onDisk = append(n.onDisk, make([]byte, size-len(n.onDisk))...)
	}
	n.onDisk = n.onDisk[:size]
	for _, page := range pages {
		from, to := page*pageSize, min((page+1)*pageSize, size, len(n.data))
		if from < to {
			copy(n.onDisk[from:to], n.data[from:to])
		}
	}
}

// Cut takes the power away. Every further request fails. It returns the disk as it comes back: with
// all that was synced and, if draw is not nil, with what draw picks of the rest.
func (d *Disk) Cut(draw *rand.Rand) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	if draw != nil {
		d.commit(draw.IntN(len(d.journal) + 1))
		for id := range uint64(len(d.nodes)) {
			d.nodes[id+1].survive(draw)
		}
	}
	after, copies := NewDisk(), map[*node]*node{}
	after.SyncTakes = d.SyncTakes
	copies[d.nodes[fuse.FUSE_ROOT_ID]] = after.nodes[fuse.FUSE_ROOT_ID]
	after.fill(d.nodes[fuse.FUSE_ROOT_ID], copies)
	return after
}

// survive brings a part of the written pages to the disk.
func (n *node) survive(draw *rand.Rand) {
	pages := slices.Sorted(maps.Keys(n.dirty))
	switch draw.IntN(4) {
	case 0: // all
		n.write(pages, len(n.data))
	case 1: // some pages, from the first on: a file that grows
		size := len(n.onDisk) + draw.IntN(max(len(n.data)-len(n.onDisk), 0)+1)
		n.write(pages, min(size, len(n.data)))
	case 2: // any pages; a file does not grow over one that is missing
		pages = slices.DeleteFunc(pages, func(int) bool { return draw.IntN(2) == 0 })
		n.write(pages, len(n.onDisk))
	}
}

// fill copies the files on the disk below a directory.
func (d *Disk) fill(from *node, copies map[*node]*node) {
	for _, name := range slices.Sorted(maps.Keys(from.namesOnDisk)) {
		child := from.namesOnDisk[name]
		if copies[child] == nil {
			c := d.newNode(child.mode)
			c.data, c.onDisk, c.links = slices.Clone(child.onDisk), slices.Clone(child.onDisk), 0
			copies[child] = c
			d.fill(child, copies)
		}
		c := copies[child]
		c.links++
		copies[from].names[name], copies[from].namesOnDisk[name] = c, c
	}
}

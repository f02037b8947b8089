//go:build linux

package powertest

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// use calls f with a node while the disk has power, and returns f's answer.
func (d *Disk) use(id uint64, f func(n *node) fuse.Status) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[id]
	switch {
	case d.off:
		return fuse.EIO
	case n == nil:
		return fuse.ENOENT
	}
	return f(n)
}

func (n *node) attributes(out *fuse.Attr) {
	*out = fuse.Attr{
		Ino: n.id, Size: uint64(len(n.data)), Blocks: uint64(len(n.data)+511) / 512, Mode: n.mode,
		Nlink: n.links, Blksize: pageSize,
	}
	out.SetTimes(&n.changed, &n.changed, &n.changed)
}

func (n *node) entry(out *fuse.EntryOut) fuse.Status {
	out.NodeId, out.Generation = n.id, 1
	n.attributes(&out.Attr)
	return fuse.OK
}

// name gives a node a name in a directory, or takes the name away if n is nil.
func (d *Disk) name(dir *node, name string, n *node) {
	if before := dir.names[name]; before != nil {
		before.links--
	}
	if n == nil {
		delete(dir.names, name)
		d.journal = append(d.journal, func() { delete(dir.namesOnDisk, name) })
		return
	}
	dir.names[name] = n
	d.journal = append(d.journal, func() { dir.namesOnDisk[name] = n })
}

// Lookup implements fuse.RawFileSystem, as do the other methods of this file.
func (d *Disk) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return d.use(in.NodeId, func(dir *node) fuse.Status {
		if n := dir.names[name]; n != nil {
			return n.entry(out)
		}
		return fuse.ENOENT
	})
}

func (d *Disk) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return d.use(in.NodeId, func(n *node) fuse.Status {
		n.attributes(&out.Attr)
		return fuse.OK
	})
}

func (d *Disk) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	return d.use(in.NodeId, func(n *node) fuse.Status {
		if size, ok := in.GetSize(); ok {
			n.resize(int(size))
		}
		if mode, ok := in.GetMode(); ok {
			n.mode = n.mode&^0o7777 | mode&0o7777
		}
		n.attributes(&out.Attr)
		return fuse.OK
	})
}

func (n *node) resize(size int) {
	n.touch(min(size, len(n.data)), max(size, len(n.data)))
	if size > len(n.data) {
		n.data = append(n.data, make([]byte, size-len(n.data))...)
	}
	n.data = n.data[:size]
}

// touch marks the pages from one offset up to another.
func (n *node) touch(from, to int) {
	n.changed = time.Now()
	for page := from / pageSize; page*pageSize < to; page++ {
		n.dirty[page] = struct{}{}
	}
}

func (d *Disk) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return d.use(in.NodeId, func(dir *node) fuse.Status {
		if dir.names[name] != nil {
			return fuse.Status(syscall.EEXIST)
		}
		n := d.newNode(syscall.S_IFDIR | in.Mode&0o7777)
		d.name(dir, name, n)
		return n.entry(out)
	})
}

func (d *Disk) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return d.use(in.NodeId, func(dir *node) fuse.Status {
		if dir.names[name] != nil {
			return fuse.Status(syscall.EEXIST)
		}
		n := d.newNode(syscall.S_IFREG | in.Mode&0o7777)
		d.name(dir, name, n)
		return n.entry(&out.EntryOut)
	})
}

func (d *Disk) Unlink(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return d.remove(in.NodeId, name)
}

func (d *Disk) Rmdir(_ <-chan struct{}, in *fuse.InHeader, name string) fuse.Status {
	return d.remove(in.NodeId, name)
}

func (d *Disk) remove(id uint64, name string) fuse.Status {
	return d.use(id, func(dir *node) fuse.Status {
		switch n := dir.names[name]; {
		case n == nil:
			return fuse.ENOENT
		case len(n.names) > 0:
			return fuse.Status(syscall.ENOTEMPTY)
		}
		d.name(dir, name, nil)
		return fuse.OK
	})
}

func (d *Disk) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	return d.use(in.NodeId, func(dir *node) fuse.Status {
		n, target := dir.names[from], d.nodes[in.Newdir]
		if in.Flags != 0 {
			return fuse.EINVAL
		}
		if n == nil || target == nil {
			return fuse.ENOENT
		}
		if over := target.names[to]; over != nil && len(over.names) > 0 {
			return fuse.Status(syscall.ENOTEMPTY)
		}
		n.links++
		begin := len(d.journal)
		d.name(target, to, n)
		d.name(dir, from, nil)
		both := d.journal[begin:]
		d.journal = append(d.journal[:begin:begin], func() { both[0](); both[1]() })
		return fuse.OK
	})
}

func (d *Disk) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	return d.use(in.NodeId, func(dir *node) fuse.Status {
		n := d.nodes[in.Oldnodeid]
		if n == nil {
			return fuse.ENOENT
		}
		if dir.names[name] != nil {
			return fuse.Status(syscall.EEXIST)
		}
		n.links++
		d.name(dir, name, n)
		return n.entry(out)
	})
}

func (d *Disk) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	return d.use(in.NodeId, func(n *node) fuse.Status {
		if in.Flags&syscall.O_TRUNC != 0 {
			n.resize(0)
		}
		return fuse.OK
	})
}

func (d *Disk) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	read := 0
	status := d.use(in.NodeId, func(n *node) fuse.Status {
		if int(in.Offset) < len(n.data) {
			read = copy(buf, n.data[in.Offset:])
		}
		return fuse.OK
	})
	return fuse.ReadResultData(buf[:read]), status
}

func (d *Disk) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	status := d.use(in.NodeId, func(n *node) fuse.Status {
		from := int(in.Offset)
		if to := from + len(data); to > len(n.data) {
			n.resize(to)
		}
		n.touch(from, from+len(data))
		copy(n.data[from:], data)
		if in.Flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0 {
			d.sync(n)
		}
		return fuse.OK
	})
	return uint32(len(data)), status
}

func (d *Disk) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	select {
	case <-time.After(d.SyncTakes):
	case <-cancel:
		return fuse.EINTR
	}
	return d.use(in.NodeId, func(n *node) fuse.Status { d.sync(n); return fuse.OK })
}

func (d *Disk) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return d.Fsync(cancel, in)
}

func (d *Disk) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

func (d *Disk) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return d.use(in.NodeId, func(dir *node) fuse.Status {
		names := slices.Sorted(maps.Keys(dir.names))
		for i := int(in.Offset); i < len(names); i++ {
			n := dir.names[names[i]]
			if !out.AddDirEntry(fuse.DirEntry{Name: names[i], Ino: n.id, Mode: n.mode, Off: uint64(i) + 1}) {
				break
			}
		}
		return fuse.OK
	})
}

func (d *Disk) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	const blocks = 64 << 30 / pageSize
	*out = fuse.StatfsOut{Blocks: blocks, Bfree: blocks, Bavail: blocks, Bsize: pageSize,
		Frsize: pageSize, NameLen: 255, Files: 1 << 20, Ffree: 1 << 20}
	return fuse.OK
}

func (d *Disk) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

func (d *Disk) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (d *Disk) Release(<-chan struct{}, *fuse.ReleaseIn) {}

func (d *Disk) ReleaseDir(*fuse.ReleaseIn) {}

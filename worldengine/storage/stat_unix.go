//go:build linux || darwin || freebsd

package storage

import "golang.org/x/sys/unix"

// stat returns the room that a process without privileges has on the file system of dir.
func stat(dir string) (Disk, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return Disk{}, err
	}
	block := uint64(at.Bsize)
	return Disk{Free: uint64(max(at.Bavail, 0)) * block, Total: at.Blocks * block}, nil
}

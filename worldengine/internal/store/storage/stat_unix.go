//go:build linux || darwin || freebsd

package storage

import "golang.org/x/sys/unix"

// stat returns the room that a process without privileges has on the file system of dir.
func stat(dir string) (free, total uint64, err error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return 0, 0, err
	}
	block := uint64(at.Bsize)
	return uint64(max(at.Bavail, 0)) * block, at.Blocks * block, nil
}

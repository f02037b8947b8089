//go:build linux || darwin || freebsd

package platform

import "golang.org/x/sys/unix"

// DiskSpace returns the bytes that a process without privileges may still write on the file system of a
// directory, and the bytes that the file system has in all.
func DiskSpace(dir string) (free, total uint64, err error) {
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		return 0, 0, err
	}
	block := uint64(at.Bsize)
	return uint64(max(at.Bavail, 0)) * block, at.Blocks * block, nil
}

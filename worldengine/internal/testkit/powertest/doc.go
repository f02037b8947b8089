// Package powertest has a disk that loses its power: a file system in memory (FUSE, mounted as root)
// that keeps unsynced writes apart from synced ones.
//
// It is like ext4 and xfs: changes of names reach the disk in their order, the latest with the next
// sync of any file or directory; the content of a file reaches it with the sync of that file. When
// the power goes, a part of the unsynced writes may have reached the disk: the first changes of names,
// and any pages of a file. Unlike ext4, a file that was renamed over another one may be empty then.
package powertest

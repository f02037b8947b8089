//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package plugin

import "io"

type noLock struct{}

func (noLock) Close() error { return nil }

// lockFile does nothing here: that one process alone uses a memory is left to its operator.
func lockFile(string) (io.Closer, error) { return noLock{}, nil }

// syncDirectory does nothing here: a rename needs no more.
func syncDirectory(string) error { return nil }

//go:build !linux

package natstest

// filesInMemory does nothing.
func filesInMemory() (remove func()) { return func() {} }

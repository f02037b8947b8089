// Package platform is what the programs ask of the operating system, and each system has in its own
// way. On Windows it was built, and never run.
package platform

import "errors"

// ErrLocked is returned when another process, or another opened file of this one, has the lock.
var ErrLocked = errors.New("platform: another process has the lock")

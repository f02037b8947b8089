package server

import "time"

// SetPingInterval makes the embedded NATS servers that are started from now on ask silent clients sooner
// whether they are there, and returns what undoes it.
func SetPingInterval(d time.Duration) (undo func()) {
	before := pingInterval
	pingInterval = d
	return func() { pingInterval = before }
}

//go:build !windows

package cluster_test

import "syscall"

// lameDuckSignal has a nats-server give its streams and clients to others before it ends.
const lameDuckSignal = syscall.SIGUSR2

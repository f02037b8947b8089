package cluster_test

import "syscall"

// lameDuckSignal is not known to Windows, where these tests are only compiled.
const lameDuckSignal = syscall.SIGTERM

//go:build !linux

package schemas_test

import (
	"testing"
	"time"
)

var began = time.Now()

// threadTime returns the time since the start: here nothing else is at hand.
func threadTime(*testing.T) time.Duration { return time.Since(began) }

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A server that does not say who the user is leaves it unknown what the user may do.
func TestAFailedWhoAmIIsNoOperator(t *testing.T) {
	c := faked(t, map[string]string{"whoami": `500 the disk is full`})
	for _, command := range [][]string{{"fsck"}, {"deadletter", "list"}} {
		got := c.run(command...)
		assert.Equal(t, exitUnavailable, got.status, command)
		assert.Contains(t, got.err, "UNKNOWN (500): the disk is full", command)
	}
}

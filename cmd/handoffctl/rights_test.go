package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// If the server does not say who the user is, the rights of the user are unknown.
func TestAFailedWhoAmIIsNoOperator(t *testing.T) {
	c := faked(t, map[string]string{"whoami": `500 the disk is full`})
	for _, command := range [][]string{{"fsck"}, {"deadletter", "list"}} {
		got := c.run(command...)
		assert.Equal(t, exitUnavailable, got.status, command)
		assert.Contains(t, got.err, "UNKNOWN (500): the disk is full", command)
	}
}

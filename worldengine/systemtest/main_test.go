// Package systemtest_test holds a whole server against what fsck, readers and repairs must say of
// its world: tampered, damaged, cut off, and while it is served. checkedWorld makes the worlds.
package systemtest_test

import (
	"testing"

	"worldengine/worldengine/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 16) }

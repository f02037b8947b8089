// Package systemtest_test tests fsck, readers and repairs on a whole server's world: tampered,
// damaged, cut off, and while it is served. checkedWorld makes the worlds.
package systemtest_test

import (
	"testing"

	"worldengine/worldengine/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 16) }

package emit_test

import (
	"testing"

	"worldengine/worldengine/internal/testkit/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

package projection_test

import (
	"testing"

	"worldengine/worldengine/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

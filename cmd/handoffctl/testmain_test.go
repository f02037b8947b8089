package main

import (
	"testing"
	"time"

	"worldengine/worldengine/natstest"
)

func TestMain(m *testing.M) {
	followWait = time.Minute // no test depends on how busy the machine is
	natstest.Main(m, 20)
}

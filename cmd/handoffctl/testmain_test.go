package main

import (
	"testing"

	"worldengine/worldengine/natstest"
)

func TestMain(m *testing.M) {
	natstest.Main(m, 20)
}

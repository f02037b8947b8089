//go:build minecraft

package minecraft_test

import (
	"os"
	"testing"
)

// TestMain runs the tests where the plugin is, with its Node modules.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../../../examples/plugin-minecraft"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

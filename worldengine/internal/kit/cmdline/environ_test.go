package cmdline_test

import (
	"os"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/cmdline"
)

// A variable without a value means the default, also for a flag of a command and for a value that
// cannot be empty.
func TestUnsetEmpty(t *testing.T) {
	var line struct {
		World string `default:"main" env:"ENVIRON_WORLD"`
		Serve struct {
			Wait   time.Duration `default:"2s"`
			Preset string        `default:"x"`
		} `cmd:"" default:"withargs"`
	}
	for name, value := range map[string]string{
		"ENVIRON_WORLD": "", "ENVIRON_WAIT": "", "ENVIRON_PRESET": "y", "ENVIRON_OTHER": "",
	} {
		t.Setenv(name, value)
	}
	parser := kong.Must(&line, kong.DefaultEnvars("ENVIRON"))
	cmdline.UnsetEmpty(parser.Model)
	_, err := parser.Parse(nil)
	require.NoError(t, err)
	require.Equal(t, []any{"main", 2 * time.Second, "y"},
		[]any{line.World, line.Serve.Wait, line.Serve.Preset})
	_, set := os.LookupEnv("ENVIRON_OTHER")
	require.True(t, set, "a variable of another program")
}

package cmdline

import (
	"os"

	"github.com/alecthomas/kong"
)

// UnsetEmpty unsets the variables of a program's flags that have no value: a Compose file with
// NAME: ${VALUE:-} sets them so where it means to leave the default.
func UnsetEmpty(model *kong.Application) {
	for _, node := range append(model.Leaves(false), model.Node) {
		for _, flag := range node.Flags {
			for _, name := range flag.Envs {
				if os.Getenv(name) == "" {
					os.Unsetenv(name) // the only errors are about names that cannot be in Envs
				}
			}
		}
	}
}

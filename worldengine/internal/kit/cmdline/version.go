// Package cmdline has the parts that both programs share: the version, completion in shells, and empty variables of the
// environment.
package cmdline

import "runtime/debug"

// stamped is the version given to a build without .git, such as the image's: -ldflags "-X
// worldengine/worldengine/internal/kit/cmdline.stamped=…".
var stamped string

// Version returns the version given to the build, or the module's, or the commit's.
func Version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "0.0.0"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return "0.0.0+" + setting.Value
		}
	}
	return "0.0.0"
}

package handoffd

import (
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/serve/hosting"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/wire"
)

// worldFlags name the worlds to serve, and the files of each.
type worldFlags struct {
	World      []string `help:"Name of a world to serve: repeat the flag, or separate names by commas. A world that does not exist is created. By default main, or none with --worlds all." placeholder:"NAME"`
	Worlds     string   `help:"Worlds to serve: the ones that --world names (named), or all worlds of this NATS, also later ones (all)." enum:"named,all" default:"named"`
	WorldFile  []string `help:"File with the towns to create if they do not exist yet: a JSON array of snapshot.v1, at most 64 MiB. WORLD=FILE names the world, if there are several; the flag can then be repeated." placeholder:"FILE" sep:"none"`
	RCONConfig []string `name:"rcon-config" help:"File with the console that applies the commands of towns bound to rcon, and the lines to run there: see docs/rcon.md. WORLD=FILE names the world, if there are several; the flag can then be repeated." placeholder:"FILE" sep:"none"`
}

// names returns the names of the worlds of --world.
func (f *worldFlags) names() []string {
	if len(f.World) == 0 && !f.all() {
		return []string{wire.DefaultWorld}
	}
	return f.World
}

func (f *worldFlags) all() bool { return f.Worlds == "all" }

// several reports whether the server may serve more than one world.
func (f *worldFlags) several() bool { return f.all() || len(f.World) > 1 }

// Validate refuses worlds that no server can serve, and files without a world.
func (f *worldFlags) Validate() error {
	_, _, err := f.worlds()
	return err
}

// worlds returns the worlds to serve, and the files with their consoles, which it does not read, by world.
func (f *worldFlags) worlds() (worlds hosting.Config, consoles map[string]string, err error) {
	worlds.Names, worlds.All, worlds.Consoles = f.names(), f.all(), map[string]*rcon.Config{}
	if worlds.Files, err = f.files("--world-file", f.WorldFile); err != nil {
		return worlds, nil, err
	}
	if consoles, err = f.files("--rcon-config", f.RCONConfig); err != nil {
		return worlds, nil, err
	}
	for world := range consoles {
		worlds.Consoles[world] = nil
	}
	return worlds, consoles, worlds.Check()
}

// files returns the files of a flag by world.
func (f *worldFlags) files(flag string, values []string) (map[string]string, error) {
	files := map[string]string{}
	for _, value := range values {
		world, file, err := f.fileOf(flag, value)
		if err != nil {
			return nil, err
		}
		if files[world] != "" {
			return nil, fmt.Errorf("%s names two files for the world %s: leave one out", flag, world)
		}
		files[world] = file
	}
	return files, nil
}

// fileOf reads [WORLD=]FILE. The name of an existing file may have the form WORLD=FILE.
func (f *worldFlags) fileOf(flag, value string) (world, file string, err error) {
	file = kong.ExpandPath(value)
	world, rest, named := strings.Cut(value, "=")
	if info, err := os.Stat(file); err == nil && !info.IsDir() || !named || wire.ValidateWorld(world) != nil {
		if f.several() {
			return "", "", fmt.Errorf("%s %s: say for which of the worlds, such as %s %s=%s", flag, value,
				flag, append(f.names(), "WORLD")[0], value)
		}
		world = f.names()[0]
	} else {
		file = kong.ExpandPath(rest)
	}
	info, err := os.Stat(file)
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory", file)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", flag, err)
	}
	return world, file, nil
}

// configure sets the worlds of a configuration, with their files. It reads the files of --rcon-config.
func (f *worldFlags) configure(config *server.Config) error {
	worlds, consoles, err := f.worlds()
	if err != nil {
		return err
	}
	worlds.Backlogs = new(hosting.Backlogs)
	for world, file := range consoles {
		console, err := rcon.ReadConfig(file, os.LookupEnv)
		if err != nil {
			return err
		}
		worlds.Consoles[world] = &console
	}
	config.Worlds = worlds
	return nil
}

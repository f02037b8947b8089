package handoffd

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"worldengine/worldengine/internal/engine/rcon"
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
	for i, world := range f.World {
		if err := validateWorld(world); err != nil {
			return err
		}
		if slices.Contains(f.World[:i], world) {
			return fmt.Errorf("--world names %s twice: leave one out", world)
		}
	}
	if _, err := f.files("--world-file", f.WorldFile); err != nil {
		return err
	}
	_, err := f.files("--rcon-config", f.RCONConfig)
	return err
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
	if !f.all() && !slices.Contains(f.names(), world) {
		return "", "", fmt.Errorf("%s is for the world %s, which no --world names: add --world %s", flag,
			world, world)
	}
	return world, file, nil
}

// configure sets the worlds of a configuration, with their files. It reads the files of --rcon-config.
func (f *worldFlags) configure(config *server.Config) error {
	config.Worlds.Names, config.Worlds.All = f.names(), f.all()
	var err error
	if config.Worlds.Files, err = f.files("--world-file", f.WorldFile); err != nil {
		return err
	}
	consoles, err := f.files("--rcon-config", f.RCONConfig)
	if err != nil {
		return err
	}
	config.Worlds.Consoles = map[string]*rcon.Config{}
	for world, file := range consoles {
		console, err := rcon.ReadConfig(file, os.LookupEnv)
		if err != nil {
			return err
		}
		config.Worlds.Consoles[world] = &console
	}
	return nil
}

package server

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"worldengine/worldengine/internal/core/worldfile"
	"worldengine/worldengine/internal/engine/rcon"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/wire"
)

// Backlogs keep the alerts of each world that could not be stored, for the next server of the process.
// The zero value is empty; it is safe for concurrent use.
type Backlogs struct{ byWorld sync.Map }

func (b *Backlogs) get(world string) *alerts.Backlog {
	backlog, _ := b.byWorld.LoadOrStore(world, new(alerts.Backlog))
	return backlog.(*alerts.Backlog)
}

func (b *Backlogs) forget(world string) { b.byWorld.Delete(world) }

// several reports whether the server may serve more than one world.
func (c *Config) several() bool { return c.AllWorlds || len(c.Worlds) > 1 }

// checkWorlds returns an error for worlds that no server can serve, and for files of worlds that this
// server does not name.
func (c *Config) checkWorlds() error {
	for i, world := range c.Worlds {
		if err := wire.ValidateWorld(world); err != nil {
			return err
		}
		if slices.Contains(c.Worlds[:i], world) {
			return fmt.Errorf("server: the world %s is named twice: give each --world once", world)
		}
	}
	if c.several() && c.Engine.Storage.DiscardHistory {
		return errors.New("server: --discard-history changes the settings of one world: start with one " +
			"--world, or use handoffctl world settings set")
	}
	for world := range c.WorldFiles {
		if !slices.Contains(c.Worlds, world) {
			return fmt.Errorf("server: --world-file is for the world %s, which no --world names: add "+
				"--world %s", world, world)
		}
	}
	for world := range c.Consoles {
		if !slices.Contains(c.Worlds, world) && !c.AllWorlds {
			return fmt.Errorf("server: --rcon-config is for the world %s, which no --world names: add "+
				"--world %s", world, world)
		}
	}
	return nil
}

// label returns the world in the names of the server's connections; nothing for several worlds.
func (c *Config) label() string {
	if c.several() {
		return ""
	}
	return c.Engine.World + " "
}

// first reports whether World and RCON are for a world.
func (c *Config) first(world string) bool {
	return len(c.Worlds) == 0 && !c.AllWorlds || len(c.Worlds) > 0 && c.Worlds[0] == world
}

// consoleOf returns the console of a world; nil if it has none.
func (c *Config) consoleOf(world string) *rcon.Config {
	if console := c.Consoles[world]; console != nil || !c.first(world) {
		return console
	}
	return c.RCON
}

// fileOf returns the name of the world file of a world; empty if it has none.
func (c *Config) fileOf(world string) string {
	if name := c.WorldFiles[world]; name != "" || !c.first(world) {
		return name
	}
	return c.WorldFile
}

// worldFile returns the content of the world file of a world; nil if it has none.
func (c *Config) worldFile(world string) ([]byte, error) {
	name := c.fileOf(world)
	switch {
	case name != "":
		file, err := platform.ReadFile(name, worldfile.MaxBytes)
		return file, c.worldFileError(world, err)
	case c.first(world):
		return c.World, nil
	}
	return nil, nil
}

// worldFileError adds the name of the file of a world to an error that was found in it.
func (c *Config) worldFileError(world string, err error) error {
	if name := c.fileOf(world); err != nil && name != "" {
		return fmt.Errorf("server: world file %s: %w", name, err)
	}
	return err
}

// Alone returns the configuration of a server that serves one of the worlds alone.
func (c Config) Alone(world string) Config {
	file, console := c.fileOf(world), c.consoleOf(world)
	if !c.first(world) {
		c.World = nil
	}
	c.Worlds, c.AllWorlds, c.Engine.World = nil, false, world
	c.WorldFile, c.WorldFiles = file, nil
	c.RCON, c.Consoles = console, nil
	return c
}

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
func (c *Config) several() bool { return c.Worlds.All || len(c.Worlds.Names) > 1 }

// check returns the errors that need nothing but the configuration.
func (c *Config) check() error {
	if err := c.checkWorlds(); err != nil {
		return err
	}
	return c.checkAddresses()
}

// checkWorlds returns an error for worlds that no server can serve, and for files of worlds that this
// server does not name.
func (c *Config) checkWorlds() error {
	for i, world := range c.Worlds.Names {
		if err := wire.ValidateWorld(world); err != nil {
			return err
		}
		if slices.Contains(c.Worlds.Names[:i], world) {
			return fmt.Errorf("server: the world %s is named twice: give each --world once", world)
		}
	}
	if c.several() && c.Engine.Storage.DiscardHistory {
		return errors.New("server: --discard-history changes the settings of one world: start with one " +
			"--world, or use handoffctl world settings set")
	}
	for world := range c.Worlds.Files {
		if !slices.Contains(c.Worlds.Names, world) {
			return fmt.Errorf("server: --world-file is for the world %s, which no --world names: add "+
				"--world %s", world, world)
		}
	}
	for world := range c.Worlds.Consoles {
		if !slices.Contains(c.Worlds.Names, world) && !c.Worlds.All {
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

// worldFile returns the content of the world file of a world; nil if it has none.
func (c *Config) worldFile(world string) ([]byte, error) {
	if name := c.Worlds.Files[world]; name != "" {
		file, err := platform.ReadFile(name, worldfile.MaxBytes)
		return file, c.worldFileError(world, err)
	}
	if slices.Index(c.Worlds.Names, world) == 0 {
		return c.Worlds.Towns, nil
	}
	return nil, nil
}

// worldFileError adds the name of the file of a world to an error that was found in it.
func (c *Config) worldFileError(world string, err error) error {
	if name := c.Worlds.Files[world]; err != nil && name != "" {
		return fmt.Errorf("server: world file %s: %w", name, err)
	}
	return err
}

// Alone returns the configuration of a server that serves one of the worlds alone.
func (c Config) Alone(world string) Config {
	one := Worlds{Names: []string{world}, Backlogs: c.Worlds.Backlogs}
	if file := c.Worlds.Files[world]; file != "" {
		one.Files = map[string]string{world: file}
	}
	if console := c.Worlds.Consoles[world]; console != nil {
		one.Consoles = map[string]*rcon.Config{world: console}
	}
	if slices.Index(c.Worlds.Names, world) == 0 {
		one.Towns = c.Worlds.Towns
	}
	c.Worlds, c.Engine.World = one, world
	return c
}

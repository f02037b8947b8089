package apply

import (
	"fmt"
	"slices"
)

// Binding says who applies a town's accepted commands. The set is closed.
type Binding string

// The bindings. A town without one has the engine's, engine.Config.Apply.
const (
	// Local: the built-in rules.
	Local Binding = "local"
	// Plugin: the plugin of the town's game server, over NATS.
	Plugin Binding = "plugin"
	// RCON: the console of a game server without a plugin, engine.Config.RCON.
	RCON Binding = "rcon"
)

// Bindings returns the known bindings.
func Bindings() []Binding { return []Binding{Local, Plugin, RCON} }

// Validate returns an error for an unknown binding.
func (b Binding) Validate() error {
	if !slices.Contains(Bindings(), b) {
		return fmt.Errorf("apply: commands are applied by one of %v, not %q",
			Bindings(), string(b))
	}
	return nil
}

// Game names the part of a game that applies commands: a plugin, or a console.
func (b Binding) Game() string {
	if b == RCON {
		return "console"
	}
	return "plugin"
}

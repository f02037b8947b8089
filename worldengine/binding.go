package worldengine

import (
	"fmt"
	"slices"
)

// Binding says who applies a town's accepted commands.
type Binding string

// The bindings. A town without one of its own has the engine's, Config.Apply.
const (
	// ApplyLocal: the built-in rules.
	ApplyLocal Binding = "local"
	// ApplyPlugin: the plugin of the game server that hosts the town, asked over NATS.
	ApplyPlugin Binding = "plugin"
	// ApplyRCON: commands on the console of a game server without a plugin, Config.RCON.
	ApplyRCON Binding = "rcon"
)

// Bindings returns the known bindings.
func Bindings() []Binding { return []Binding{ApplyLocal, ApplyPlugin, ApplyRCON} }

func (b Binding) validate() error {
	if !slices.Contains(Bindings(), b) {
		return fmt.Errorf("worldengine: commands are applied by one of %v, not %q", Bindings(), string(b))
	}
	return nil
}

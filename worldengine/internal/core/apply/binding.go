package apply

import (
	"cmp"
	"fmt"
	"slices"

	"worldengine/handoff"
)

// Binding says who applies a town's accepted commands. The set is closed.
type Binding string

// The bindings. A town without one has the engine's, engine.Config.Binding.
const (
	// Local: the built-in rules.
	Local Binding = "local"
	// Plugin: the plugin of the town's game server, over NATS.
	Plugin Binding = "plugin"
	// RCON: the console of a game server without a plugin, engine.Config.RCON.
	RCON Binding = "rcon"
)

// BindingSpec declares the facts about a binding.
type BindingSpec struct {
	Binding Binding
	// BuiltIn says that the built-in rules apply the commands, and no game is asked. Then the facts below are zero.
	BuiltIn bool
	// Game names the part of a game that applies the commands.
	Game string
	// NeedsConsole says that the engine must have a Console.
	NeedsConsole bool
	// SingleRequest says that an attempt sends the command once, since the game does not know the ids of commands, and
	// could apply a repeated one twice.
	SingleRequest bool
	// InDoubt is the reason of a failure after which the command may be applied, since no answer says so.
	InDoubt handoff.ReasonCode
	// Failures are the reasons of failed attempts that metrics show before the first such failure.
	Failures []handoff.ReasonCode
}

var bindingSpecs = []BindingSpec{
	{Binding: Local, BuiltIn: true},
	{Binding: Plugin, Game: "plugin", InDoubt: ReasonPluginTimeout,
		Failures: []handoff.ReasonCode{ReasonPluginRejected, ReasonPluginTimeout, ReasonGameUnavailable}},
	{Binding: RCON, Game: "console", NeedsConsole: true, SingleRequest: true, InDoubt: ReasonRCONInDoubt,
		Failures: []handoff.ReasonCode{ReasonGameUnavailable, ReasonRCONInDoubt}},
}

// Spec returns the declaration of a binding; the zero BindingSpec if the binding is unknown.
func (b Binding) Spec() BindingSpec {
	for _, spec := range bindingSpecs {
		if spec.Binding == b {
			return spec
		}
	}
	return BindingSpec{}
}

// Bindings returns the known bindings.
func Bindings() (known []Binding) {
	for _, spec := range bindingSpecs {
		known = append(known, spec.Binding)
	}
	return known
}

// Validate returns an error for an unknown binding.
func (b Binding) Validate() error {
	if !slices.Contains(Bindings(), b) {
		return fmt.Errorf("apply: commands are applied by one of %v, not %q",
			Bindings(), string(b))
	}
	return nil
}

// FailInDoubt returns the failure of an attempt whose command the game may have applied.
func (b Binding) FailInDoubt(why string) AttemptResult {
	return AttemptResult{MayHaveReached: true, Failure: &Failure{
		Reason: cmp.Or(b.Spec().InDoubt, ReasonPluginTimeout), Message: truncated(why),
	}}
}

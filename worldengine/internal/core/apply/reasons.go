package apply

import (
	"slices"

	"worldengine/handoff"
)

// The reasons why an accepted handoff failed outside the engine.
const (
	// ReasonPluginTimeout: no definite answer came in any attempt, and some request may have
	// arrived.
	ReasonPluginTimeout handoff.ReasonCode = "PLUGIN_TIMEOUT"
	// ReasonGameUnavailable: no request reached a plugin or a console, so the command was not
	// applied.
	ReasonGameUnavailable handoff.ReasonCode = "PLUGIN_UNAVAILABLE"
	// ReasonPluginRejected: the plugin refused, for good or in the last attempt.
	ReasonPluginRejected handoff.ReasonCode = "PLUGIN_REJECTED"
	// ReasonPluginStateInvalid: the plugin reported a state that is not a snapshot.v1 of the town.
	ReasonPluginStateInvalid handoff.ReasonCode = "PLUGIN_STATE_INVALID"
	// ReasonRCONInDoubt: the command may be applied, and a console cannot be asked again.
	ReasonRCONInDoubt handoff.ReasonCode = "RCON_IN_DOUBT"
)

// MayBeApplied reports whether a command that failed for a reason may nevertheless be applied in
// the game.
func MayBeApplied[R ~string](reason R) bool {
	return handoff.ReasonCode(reason) == ReasonPluginStateInvalid ||
		slices.ContainsFunc(bindingSpecs, func(spec BindingSpec) bool {
			return spec.InDoubt != "" && spec.InDoubt == handoff.ReasonCode(reason)
		})
}

// MayBeRetried reports whether an operator may retry a run that failed for a reason: nothing reached a game. Every
// other end of a run is final. The console's page has the same list (rows.js).
func MayBeRetried[R ~string](reason R) bool {
	return handoff.ReasonCode(reason) == ReasonGameUnavailable
}

package layout

import (
	"slices"

	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/wire"
)

// worldToken stands for the town in the subjects of events that belong to no town, such as a pause
// of the world. No town has this token.
const worldToken = "=world"

// UnknownTownToken stands for all towns that do not exist, in the subject of their refused runs.
// One subject for all bounds the memory of NATS, since clients can make up any number of town ids.
// No town has this token.
const UnknownTownToken = "=unknown"

// TokenOf returns TownToken of a record's town, or worldToken if the record has no town.
func TokenOf(townID string) string {
	if townID == "" {
		return worldToken
	}
	return wire.TownToken(townID)
}

// RunToken returns the subject token of a run, which is made like a town token.
func RunToken(runID string) string { return wire.TownToken(runID) }

// RunIDOf returns the run that RunIDHeader of a log message names; "" if it names none. The header has the
// runId percent-encoded, since a producer may choose any text.
func RunIDOf(header interface{ Get(name string) string }) string {
	runID, err := percent.Decode(header.Get(wire.RunIDHeader))
	if err != nil {
		return ""
	}
	return runID
}

// TownTokens returns the tokens of towns, sorted and each once; nil for nil, which means all towns.
func TownTokens(townIDs []string) []string {
	if townIDs == nil {
		return nil
	}
	tokens := make([]string, 0, len(townIDs))
	for _, id := range townIDs {
		tokens = append(tokens, wire.TownToken(id))
	}
	slices.Sort(tokens)
	return slices.Compact(tokens)
}

// ActorToken returns the value of ActorHeader for an actor, made like a town token; "" for no
// actor.
func ActorToken(actorID string) string {
	if actorID == "" {
		return ""
	}
	return wire.TownToken(actorID)
}

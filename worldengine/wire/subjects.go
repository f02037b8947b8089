package wire

import (
	"fmt"
	"regexp"
	"strings"
)

// DefaultWorld is the name of the world unless the operator gives another.
const DefaultWorld = "main"

var worldName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ValidateWorld refuses a world name that cannot be a subject token.
func ValidateWorld(world string) error {
	if !worldName.MatchString(world) {
		return fmt.Errorf("worldengine: a world's name is 1 to 64 of A-Z a-z 0-9 _ -, not %q",
			world)
	}
	return nil
}

// prefix begins the subject of every verb.
const prefix = "worldengine.v1."

// WorldsToken stands for the name of a world in the subjects of the verbs about worlds.
const WorldsToken = "=worlds"

// Subject returns the subject of a verb: worldengine.v1.<world>.<verb>, or worldengine.v1.=<verb> if
// the verb is about worlds. The verb may be a string that is no Verb.
func Subject[V ~string](world string, verb V) string {
	if name, ok := strings.CutPrefix(string(verb), worldsPrefix); ok {
		return prefix + WorldsToken + "." + name
	}
	return prefix + world + "." + string(verb)
}

// ApplySubject returns the subject on which the engine asks the plugin that hosts a town to apply a
// command (docs/plugin-protocol.md). "*" may stand for the token.
func ApplySubject(world, townToken string) string { return Subject(world, "apply."+townToken) }

// HostsSubject returns the subject on which plugins ask each other who hosts a town or, with
// AllTownsToken, who hosts any town (docs/plugin-protocol.md). "*" may stand for the token.
func HostsSubject(world, townToken string) string { return Subject(world, "hosts."+townToken) }

// AllTownsToken stands for all towns in a HostsSubject. It is no town's token.
const AllTownsToken = "=all"

// EventsSubject returns the subject of the live commit messages of a town. "*" may stand for the
// token.
func EventsSubject(world, townToken string) string { return Subject(world, "events."+townToken) }

// EventSubject returns the subject of a run's events on the bus. A run token is made like a town token, by TownToken.
// "*" and ">" may stand for the tokens.
func EventSubject(world, townToken, runToken string) string {
	return "runevents.v2." + world + "." + townToken + "." + runToken
}

// AlertSubject returns the subject of the alerts with a code. "*" may stand for the code.
func AlertSubject(world, code string) string { return "alerts.v1." + world + "." + code }

// EventStream returns the name of the stream of run events that `--bus jetstream` fills.
func EventStream(world string) string { return "WORLD_" + world + "_RUNEVENTS" }

package access

import (
	"slices"
	"strings"
	"time"

	"worldengine/dedupe"
	"worldengine/worldengine"
)

// grants is who may ask what: every verb of the service, and the roles besides the engine that may
// publish on it. A verb that is not here is nobody's.
var grants = []struct {
	verb  string
	roles []Role
}{
	{"handoff", []Role{Agent, Operator}},
	{"town.get", readers},
	{"town.list", readers},
	{"town.put", []Role{Plugin, Operator}},
	{"town.patch", []Role{Plugin, Operator}},
	{"result.get", readers},
	{"run.get", readers},
	{"run.list", readers},
	{"run.events", readers},
	{"run.append", []Role{Plugin, Operator}},
	{"run.cancel", []Role{Operator}},
	{"control.pause", []Role{Operator}},
	{"control.resume", []Role{Operator}},
	{"control.get", readers},
}

var readers = []Role{Agent, Plugin, Operator, Observer}

// Verbs returns the verbs that somebody may ask.
func Verbs() []string {
	verbs := make([]string, len(grants))
	for i, g := range grants {
		verbs[i] = g.verb
	}
	return verbs
}

// ClientsAccount is the NATS account of agents, plugins and observers, and WorldAccount that of the
// engine and of operators. In an embedded server the latter is the server's global one.
const (
	ClientsAccount = "CLIENTS"
	WorldAccount   = "WORLD"
)

// A plugin may answer a request MaxAnswers times, and anybody has AnswersExpire to answer: a handoff
// may wait through a pause, and a command may take long in a game.
const (
	MaxAnswers    = 64
	AnswersExpire = 24 * time.Hour
)

// discovery are the subjects on which NATS micro services tell of themselves.
const discovery = "$SRV.>"

// Streams returns the names of all streams of a world.
func Streams(world string) []string {
	return []string{
		worldengine.LogStream(world), dedupe.StreamName(world),
		worldengine.EventStream(world), "WORLD_" + world + "_PENDING",
		worldengine.DeadLetterStream(world), worldengine.AlertStream(world),
	}
}

// heard are the subjects of what operators and observers may hear.
func heard(world string) []string {
	return []string{
		events(world, "*"),
		below(worldengine.AlertSubject(world, "*")),
		below(worldengine.DeadLetterSubject(world, "*", "*", "*")),
	}
}

// events are the subjects of the run events of a town, or, with "*", of all towns.
func events(world, token string) string { return below(worldengine.EventSubject(world, token, "*")) }

// below puts ">" for everything from the first wildcard on: who may subscribe to that, may subscribe to
// any narrower subject.
func below(subject string) string {
	before, _, _ := strings.Cut(subject, "*")
	return before + ">"
}

// Permissions are the subjects on which a user may publish and subscribe. Nothing else is allowed, but
// where All is set, everything. Respond allows to publish on the reply subject of a request that was
// received.
type Permissions struct {
	All                bool
	Publish, Subscribe []string
	Respond            bool
}

// PermissionsOf returns the permissions of a user in a world. It is the only place that decides about
// subjects.
func PermissionsOf(world string, u *User) Permissions {
	if u.Role == Engine {
		return Permissions{All: true}
	}
	p := Permissions{Subscribe: []string{u.InboxPrefix() + ".>"}, Respond: u.Role == Plugin}
	for _, g := range grants {
		if slices.Contains(g.roles, u.Role) {
			p.Publish = append(p.Publish, worldengine.Subject(world, g.verb))
		}
	}
	for _, token := range tokens(u.Towns) {
		if u.Role == Plugin {
			p.Subscribe = append(p.Subscribe, worldengine.ApplySubject(world, token))
		}
		if u.Role.hasTowns() {
			p.Subscribe = append(p.Subscribe, events(world, token))
		}
	}
	if !u.Role.hasTowns() {
		p.Publish = append(p.Publish, discovery)
		p.Subscribe = append(p.Subscribe, heard(world)...)
	}
	if u.Role == Operator {
		p.Publish = append(p.Publish, reading(world)...)
	}
	return p
}

// tokens returns the town tokens of towns; that of all towns where there are none.
func tokens(towns []string) []string {
	if len(towns) == 0 {
		return []string{"*"}
	}
	tokens := make([]string, len(towns))
	for i, id := range towns {
		tokens[i] = worldengine.TownToken(id)
	}
	return tokens
}

// reading are the subjects of the JetStream API with which the streams of a world are read: what
// handoffctl fsck (without --repair), watch and backup need.
func reading(world string) []string {
	subjects := []string{"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"}
	for _, name := range Streams(world) {
		for _, verb := range []string{
			"STREAM.INFO." + name, "STREAM.MSG.GET." + name,
			"DIRECT.GET." + name, "DIRECT.GET." + name + ".>",
			"CONSUMER.NAMES." + name, "CONSUMER.LIST." + name, "CONSUMER.INFO." + name + ".*",
			"CONSUMER.CREATE." + name, "CONSUMER.CREATE." + name + ".>",
			"CONSUMER.MSG.NEXT." + name + ".*", "CONSUMER.DELETE." + name + ".*",
		} {
			subjects = append(subjects, "$JS.API."+verb)
		}
		// A snapshot is sent to the inbox of who asks, as far as its chunks are acknowledged.
		subjects = append(subjects, "$JS.API.STREAM.SNAPSHOT."+name, "$JS.SNAPSHOT.ACK."+name+".>")
	}
	return subjects
}

// Crossings are what crosses from the clients' account to the world's: Services are subjects of
// requests, Shared those that are marked with their user, and Heard subjects of messages that the
// clients may subscribe to.
type Crossings struct {
	Shared, Services, Heard []string
}

// CrossingsOf returns the crossings of a world. What no client may ask does not cross, so that no reply
// subject leads there either.
func CrossingsOf(world string) Crossings {
	c := Crossings{Services: []string{discovery}, Heard: heard(world)}
	for _, g := range grants {
		if slices.ContainsFunc(g.roles, Role.IsClient) {
			c.Shared = append(c.Shared, worldengine.Subject(world, g.verb))
		}
	}
	return c
}

package access

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// The NATS accounts of a world.
const (
	// ClientsAccount is the account of agents, plugins, approvers and observers.
	ClientsAccount = "CLIENTS"
	// WorldAccount is the account of the engine and of operators. In an embedded server it is the
	// server's global account.
	WorldAccount = "WORLD"
)

// How a plugin may answer a request: a command may take long in a game.
const (
	// MaxAnswers is how many replies to one request NATS allows a plugin.
	MaxAnswers = 64
	// AnswerWindow is how long after the request NATS allows the replies.
	AnswerWindow = 24 * time.Hour
)

// readAnswerWindow is how long NATS can still carry an answer back to a client, unless the verb has
// another time. This bounds the memory of requests that are never answered. The client gets a later
// answer to a handoff with result.get, or by sending the handoff again.
const readAnswerWindow = 30 * time.Second

// AnswerTimeout returns how long NATS waits for the engine's answer to a client's request on the
// subject of a verb.
func AnswerTimeout(subject string) time.Duration {
	return cmp.Or(protocol.LookupVerb(layout.VerbOf(subject)).AnswerTimeout, readAnswerWindow)
}

// subscribable returns the subjects of a world that operators and observers may subscribe to.
func subscribable(world string) []string {
	return []string{
		events(world, "*"),
		wire.EventsSubject(world, "*"),
		wildcard(wire.AlertSubject(world, "*")),
		wildcard(layout.DeadLetterSubject(world, "*", "*", "*")),
	}
}

// subscriptionsOf returns the subjects of a world's messages that a user may subscribe to: run events and commits
// of the towns in Read or, if Read is empty, in Towns. Alerts and dead letters are about all towns:
// only users of roles without Towns get them, if Read is empty.
func subscriptionsOf(world string, u *User) []string {
	towns := u.Towns
	if len(u.Read) > 0 {
		towns = u.Read
	}
	if len(u.Read) == 0 && !protocol.LookupRole(u.Role).Towns {
		return subscribable(world)
	}
	var subjects []string
	for _, token := range tokens(towns) {
		subjects = append(subjects, events(world, token), wire.EventsSubject(world, token))
	}
	return subjects
}

// events returns the subjects of the run events of a town, or, with "*", of all towns.
func events(world, token string) string { return wildcard(wire.EventSubject(world, token, "*")) }

// wildcard replaces the wildcards at the end of a subject by ">". A permission for the new subject
// covers every narrower one.
func wildcard(subject string) string {
	for strings.HasSuffix(subject, ".*") {
		subject = strings.TrimSuffix(subject, ".*")
	}
	return subject + ".>"
}

// Permissions are what NATS allows a user.
type Permissions struct {
	// All allows everything; the other members do not count then.
	All bool
	// Publish and Subscribe are the subjects that the user may publish on and subscribe to.
	Publish, Subscribe []string
	// Respond lets the user publish on the reply subject of a request that the user received,
	// within MaxAnswers and AnswerWindow.
	Respond bool
}

// PermissionsOf returns the permissions of a user among the worlds that exist. It is the only place
// that decides about subjects. Only the permissions of a user with patterns in Worlds depend on the
// worlds that exist.
func PermissionsOf(existing []string, u *User) Permissions {
	if u.Role == wire.Engine {
		return Permissions{All: true}
	}
	p := Permissions{Subscribe: []string{u.InboxPrefix() + ".>"}, Respond: u.Role == wire.Plugin}
	if !protocol.LookupRole(u.Role).Towns {
		p.Publish = append(p.Publish, layout.DiscoverySubjects)
	}
	p.addVerbs("", u, wire.Verb.ManagesWorlds)
	for _, world := range u.worldsIn(existing) {
		p.add(world, u)
	}
	if u.Role == wire.Operator && len(u.Worlds) == 0 { // the answers name all streams of the account
		p.Publish = append(p.Publish, "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST")
	}
	return p
}

// addVerbs adds the permissions to send those verbs of the user's role that are of a kind.
func (p *Permissions) addVerbs(world string, u *User, ofKind func(wire.Verb) bool) {
	for _, verb := range protocol.Verbs() {
		if ofKind(verb) && slices.Contains(protocol.LookupVerb(verb).Roles, u.Role) {
			p.Publish = append(p.Publish, wire.Subject(world, verb))
		}
	}
}

// add adds the permissions of a user in a world.
func (p *Permissions) add(world string, u *User) {
	p.addVerbs(world, u, func(verb wire.Verb) bool { return !verb.ManagesWorlds() })
	if u.Role == wire.Plugin {
		for _, token := range tokens(u.Towns) {
			p.Subscribe = append(p.Subscribe, wire.ApplySubject(world, token),
				wire.HostsSubject(world, token))
			p.Publish = append(p.Publish, wire.HostsSubject(world, token))
		}
		if len(u.Towns) > 0 { // a plugin of all towns asks it too
			p.Subscribe = append(p.Subscribe, wire.HostsSubject(world, wire.AllTownsToken))
		}
	}
	p.Subscribe = append(p.Subscribe, subscriptionsOf(world, u)...)
	if u.Role == wire.Operator {
		p.Publish = append(p.Publish, reading(world)...)
	}
}

// tokens returns the town tokens of towns; "*" if there are none.
func tokens(towns []string) []string {
	if len(towns) == 0 {
		return []string{"*"}
	}
	tokens := make([]string, len(towns))
	for i, id := range towns {
		tokens[i] = wire.TownToken(id)
	}
	return tokens
}

// reading returns the subjects of the JetStream API with which the streams of a world are read, as
// handoffctl fsck (without --repair), watch and backup do. With layout.AnyWorld these are all streams of
// the account, since a wildcard stands for whole tokens only.
func reading(world string) (subjects []string) {
	streams := layout.Streams(world)
	if world == layout.AnyWorld {
		streams = []string{layout.AnyWorld}
	}
	for _, name := range streams {
		for _, verb := range []string{
			"STREAM.INFO." + name, "STREAM.MSG.GET." + name,
			"DIRECT.GET." + name, "DIRECT.GET." + name + ".>",
			"CONSUMER.NAMES." + name, "CONSUMER.LIST." + name, "CONSUMER.INFO." + name + ".*",
			"CONSUMER.CREATE." + name, "CONSUMER.CREATE." + name + ".>",
			"CONSUMER.MSG.NEXT." + name + ".*", "CONSUMER.DELETE." + name + ".*",
		} {
			subjects = append(subjects, "$JS.API."+verb)
		}
		// Durable consumers acknowledge messages, such as run events of the bus.
		subjects = append(subjects, "$JS.ACK."+name+".>")
		// NATS sends a snapshot to the asking inbox, and waits for its chunks to be acknowledged.
		subjects = append(subjects, "$JS.API.STREAM.SNAPSHOT."+name, "$JS.SNAPSHOT.ACK."+name+".>")
	}
	return subjects
}

// Imports are the subjects that one of the two accounts imports from the other: they cross between the clients'
// account and the world's.
type Imports struct {
	// Shared are subjects of requests that NATS marks with their user (layout.UserHeader). They
	// arrive on layout.ImportedSubject of the subject.
	Shared []string
	// Discovery are subjects of requests that NATS marks in the same way, and that several servers
	// answer.
	Discovery []string
	// Services are subjects of requests that arrive as they are.
	Services []string
	// Heard are subjects of messages of the world's account that clients may receive.
	Heard []string
	// Diverted are subjects on which clients receive messages from the world's account alone. A
	// message that a client publishes on one, or wants an answer sent to, goes to the
	// layout.DivertedSubject of the subject, which has no subscribers.
	Diverted []string
}

// AskingInbox is the prefix of the inboxes on which the engine receives the answers of plugins. The answers
// cross to the world's account.
var AskingInbox = layout.InboxPrefix(AskingUser)

// AllImports returns the imports of all worlds. Verbs that no client may ask do not cross, so
// that no reply subject leads to them either.
func AllImports() Imports {
	heard := append(subscribable(layout.AnyWorld), wire.ApplySubject(layout.AnyWorld, "*"))
	c := Imports{
		Discovery: []string{layout.DiscoverySubjects}, Services: []string{AskingInbox + ".>"},
		Heard: heard, Diverted: heard,
	}
	for _, verb := range protocol.Verbs() {
		isClient := func(r wire.Role) bool { return protocol.LookupRole(r).Client }
		if slices.ContainsFunc(protocol.LookupVerb(verb).Roles, isClient) {
			c.Shared = append(c.Shared, wire.Subject(layout.AnyWorld, verb))
		}
	}
	return c
}

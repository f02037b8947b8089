package wire

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// DefaultWorld is the name of the world unless the operator gives another.
const DefaultWorld = "main"

// AnyWorld stands for the name of a world in a subject that matches all worlds.
const AnyWorld = "*"

var worldName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ValidateWorld refuses a world name that cannot be a subject token.
func ValidateWorld(world string) error {
	if !worldName.MatchString(world) {
		return fmt.Errorf("worldengine: a world's name is 1 to 64 of A-Z a-z 0-9 _ -, not %q",
			world)
	}
	return nil
}

// SubjectPrefix returns the prefix of the subjects of a world's verbs, without its last dot.
func SubjectPrefix(world string) string { return "worldengine.v1." + world }

// WorldsToken stands for the name of a world in the subjects of the verbs about worlds.
const WorldsToken = "=worlds"

// Subject returns the subject of a verb: worldengine.v1.<world>.<verb>, or worldengine.v1.=<verb> if
// the verb is about worlds. The verb may be a string that is no Verb.
func Subject[V ~string](world string, verb V) string {
	if name, ok := strings.CutPrefix(string(verb), worldsPrefix); ok {
		return SubjectPrefix(WorldsToken) + "." + name
	}
	return SubjectPrefix(world) + "." + string(verb)
}

// VerbOf returns the verb of a subject that Subject returned.
func VerbOf(subject string) Verb {
	world, verb, _ := strings.Cut(strings.TrimPrefix(subject, SubjectPrefix("")), ".")
	if world == WorldsToken {
		return Verb(worldsPrefix + verb)
	}
	return Verb(verb)
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

// DiscoverySubjects match the subjects of NATS micro discovery: $SRV.PING, $SRV.INFO, $SRV.STATS.
const DiscoverySubjects = "$SRV.>"

// EventSubject returns the subject of a run's events. "*" and ">" may stand for the tokens.
func EventSubject(world, townToken, runToken string) string {
	return "runevents.v2." + world + "." + townToken + "." + runToken
}

// AlertSubject returns the subject of the alerts with a code. "*" may stand for the code.
func AlertSubject(world, code string) string { return "alerts.v1." + world + "." + code }

// AcknowledgedSubject returns the subject of the acknowledgement of an alert, by the sequence of
// the alert in AlertStream. "*" may stand for the sequence.
func AcknowledgedSubject(world, seq string) string {
	return internalSubject(world, "acknowledged", seq)
}

// DeadLetterSubject returns the subject of a dead letter. stream is the name of the derived stream
// that refused the message. logSeq is the sequence of the log message from which the message was
// derived, and part is its number among the messages derived from there. "*" and ">" may stand for
// the tokens.
func DeadLetterSubject(world, stream, logSeq, part string) string {
	return "deadletter.v1." + world + "." + stream + "." + logSeq + "." + part
}

// logged or refused is the third token of each log subject that ends with a town token.
const (
	logged  = "log"
	refused = "refused"
)

// LogSubject returns the subject of a town's commits. ">" may stand for the token.
func LogSubject(world, townToken string) string { return internalSubject(world, logged, townToken) }

// RefusedSubject returns the subject of a town's refused runs.
func RefusedSubject(world, townToken string) string {
	return internalSubject(world, refused, townToken)
}

// LoggedTown returns the town token of a subject that LogSubject or RefusedSubject returned, and ""
// for any other subject.
func LoggedTown(subject string) string {
	tokens := strings.Split(subject, ".")
	if len(tokens) == 4 && (tokens[2] == logged || tokens[2] == refused) {
		return tokens[3]
	}
	return ""
}

// appended is the third token of each subject on which a log with an identity accepts appends.
const appended = "append"

// AppendSubject returns the subject on which a log with an identity accepts the messages of a subject of the log:
// world.<world>.append.<identity>, and the tokens behind the world.
func AppendSubject(subject, identity string) string {
	tokens := strings.SplitN(subject, ".", 3)
	return internalSubject(tokens[1], appended, identity, tokens[2])
}

// LogIdentity returns the identity in a subject that AppendSubject returned.
func LogIdentity(subject string) string {
	if tokens := strings.Split(subject, "."); len(tokens) > 4 && tokens[2] == appended {
		return tokens[3]
	}
	return ""
}

// LogSubjects matches the subjects of a log.
func LogSubjects(world string) string { return internalSubject(world, ">") }

// ControlSubject returns the subject of the pauses of the world.
func ControlSubject(world string) string { return internalSubject(world, "control") }

// SignalSubject returns the subject of the signals that change no state.
func SignalSubject(world string) string { return internalSubject(world, "signal") }

// CreateSubject returns the subject on which the servers that would serve a world are asked to make it. "*" may
// stand for the world.
func CreateSubject(world string) string { return internalSubject(world, "create") }

// RemoveSubject returns the subject on which the writer of a world is asked to end it and to delete its
// streams.
func RemoveSubject(world string) string { return internalSubject(world, "remove") }

// RemovedSubject returns the subject on which the servers of a world learn that it is being removed.
// "*" may stand for the world.
func RemovedSubject(world string) string { return internalSubject(world, "removed") }

// SettingsSubject returns the subject of the settings of the world.
func SettingsSubject(world string) string { return internalSubject(world, "settings") }

// StandbySubject returns the subject on which earlier programs announce that they stand by. "*" may
// stand for the world.
func StandbySubject(world string) string { return internalSubject(world, "standby") }

// StandbyWorld returns the world of a subject that StandbySubject returned.
func StandbyWorld(subject string) string {
	return strings.TrimSuffix(strings.TrimPrefix(subject, "world."), ".standby")
}

// ServersSubject is the subject on which the servers of all worlds announce themselves to each other.
const ServersSubject = "servers.v1"

// RunSubject returns the log subject of the messages of a run that are no commits of a town. "*" may stand
// for the token.
func RunSubject(world, runToken string) string { return internalSubject(world, "run", runToken) }

// RestoringSubject returns the subject of RestoringStream. There are no messages on it.
func RestoringSubject(world string) string { return internalSubject(world, "restoring") }

// internalSubject returns a subject that only a world's servers write to.
func internalSubject(world string, tokens ...string) string {
	return "world." + world + "." + strings.Join(tokens, ".")
}

// RenameStored returns the subject of a stored message of a world for another world. It returns an
// error for the subject of anything else.
func RenameStored(subject, from, to string) (string, error) {
	for _, prefix := range []string{"world.", "alerts.v1."} {
		if rest, ok := strings.CutPrefix(subject, prefix+from+"."); ok {
			return prefix + to + "." + rest, nil
		}
	}
	return "", fmt.Errorf("worldengine: %q is no subject of a stored message of world %s", subject, from)
}

// CrossedSubject returns the subject on which a request arrives in the world's account, if a client
// has published it on subject. Clients cannot publish there; NATS carries their requests across.
func CrossedSubject(subject string) string { return "clients." + subject }

// AstraySubject returns a subject without subscribers. NATS diverts to it all that clients publish
// on subject, if they may only receive on subject. "*" in subject becomes "$1", "$2" and so on, as
// NATS mappings require.
func AstraySubject(subject string) string {
	tokens := strings.Split(subject, ".")
	for i, wildcards := 0, 0; i < len(tokens); i++ {
		if tokens[i] == "*" {
			wildcards++
			tokens[i] = "$" + strconv.Itoa(wildcards)
		}
	}
	return "astray." + strings.Join(tokens, ".")
}

// inboxes are the prefixes of the reply subjects on which the service answers: inboxes, and the
// subjects on which a NATS server returns an answer to another account.
var inboxes = []string{"_INBOX.", userInbox, "_R_."}

// userInbox is the prefix of the inboxes of users that have inboxes of their own.
const userInbox = "_INBOX_"

// InboxPrefix returns the prefix of a user's inboxes in a world with access control. No other
// user can read the replies there.
func InboxPrefix(user string) string { return userInbox + user }

// InboxUser returns the user to whom an inbox belongs; "" if it belongs to no user.
func InboxUser(inbox string) string {
	name, ok := strings.CutPrefix(inbox, userInbox)
	user, _, in := strings.Cut(name, ".")
	if !ok || !in {
		return ""
	}
	return user
}

// IsInbox reports whether the service may answer on a reply subject. On any other subject the answer
// might be read as a command or an event.
func IsInbox(reply string) bool {
	for _, prefix := range inboxes {
		if strings.HasPrefix(reply, prefix) {
			return true
		}
	}
	return false
}

// Package layout declares how the servers of a world use NATS: the streams that they keep, the subjects on which they
// store records and reach each other, and the headers of the records. Clients need none of these names; package wire
// has the others. The package holds no state.
package layout

import (
	"fmt"
	"strings"

	"worldengine/worldengine/wire"
)

// AnyWorld stands for the name of a world in a subject that matches all worlds.
const AnyWorld = "*"

// verbs is the prefix of the subjects of all verbs.
var verbs = strings.TrimSuffix(wire.Subject("", ""), ".")

// WorldOf returns the world of a subject that wire.Subject returned; wire.WorldsToken of a verb about worlds.
func WorldOf(subject string) string {
	world, _, _ := strings.Cut(strings.TrimPrefix(subject, verbs), ".")
	return world
}

// VerbOf returns the verb of a subject that wire.Subject returned.
func VerbOf(subject string) wire.Verb {
	world, verb, _ := strings.Cut(strings.TrimPrefix(subject, verbs), ".")
	if world == wire.WorldsToken {
		return wire.Verb("worlds." + verb)
	}
	return wire.Verb(verb)
}

// DiscoverySubjects match the subjects of NATS micro discovery: $SRV.PING, $SRV.INFO, $SRV.STATS.
const DiscoverySubjects = "$SRV.>"

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

// PauseSubject returns the subject of the pauses of the world.
func PauseSubject(world string) string { return internalSubject(world, "control") }

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

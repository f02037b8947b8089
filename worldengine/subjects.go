package worldengine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// Defaults of what operators may set.
const (
	// DefaultWorld is the world's name.
	DefaultWorld = "main"
	// DefaultHistoryPerTown is how many commits (and as many refused runs) the log keeps a town.
	DefaultHistoryPerTown = 10_000
	// DefaultEventLimit is how many run events are kept on the bus.
	DefaultEventLimit = 10_000_000
)

// ServiceName is the name of the NATS micro service that every verb is an endpoint of.
const ServiceName = "worldengine"

// Headers of the wire and of the log.
const (
	// RunIDHeader names the run that judged a handoff, on a reply and on the log's messages.
	RunIDHeader = "Run-Id"
	// RetryAfterHeader is how many milliseconds a 429 or 503 asks to wait.
	RetryAfterHeader = "Retry-After-Ms"
	// EventTypeHeader is the eventType of a run event on the bus.
	EventTypeHeader = "Event-Type"

	kindHeader  = "Kind"           // of a log message, and of the events that were appended: see recordKind
	townHeader  = "Town-Id"        // of a town's message: the town id, percent-encoded, where it is not too long
	hashHeader  = "Snapshot-Hash"  // of a town's message: the hash of its state
	epochHeader = "Decision-Epoch" // of a town's message: the epoch of its state
)

var worldName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ValidateWorld refuses a world name that cannot be a subject token.
func ValidateWorld(world string) error {
	if !worldName.MatchString(world) {
		return fmt.Errorf("worldengine: a world's name is 1 to 64 of A-Z a-z 0-9 _ -, not %q", world)
	}
	return nil
}

// SubjectPrefix returns what the subjects of all verbs of a world start with, without the dot.
func SubjectPrefix(world string) string { return "worldengine.v1." + world }

// Subject returns the subject of a verb: worldengine.v1.<world>.<verb>.
func Subject(world, verb string) string { return SubjectPrefix(world) + "." + verb }

// LogStream returns the name of the stream that is the commit log of a world.
func LogStream(world string) string { return "WORLD_" + world + "_LOG" }

// EventStream returns the name of the stream of a world's run events.
func EventStream(world string) string { return "WORLD_" + world + "_RUNEVENTS" }

// EventSubject returns the subject of a run's events. "*" and ">" may stand for the tokens.
func EventSubject(world, townToken, runID string) string {
	return "runevents.v2." + world + "." + townToken + "." + runID
}

// pendingStream is the name of the stream of the marks that commands are being applied: see marks.
func pendingStream(world string) string { return "WORLD_" + world + "_PENDING" }

func pendingSubject(world, townToken string) string {
	return "world." + world + ".pending." + townToken
}

// ApplySubject returns the subject on which the plugin that hosts a town is asked.
func ApplySubject(world, townToken string) string { return Subject(world, "apply."+townToken) }

// DeadLetterStream returns the name of the stream of what could not be brought onto the bus.
func DeadLetterStream(world string) string { return "WORLD_" + world + "_DEADLETTER" }

// DeadLetterSubject returns the subject of a dead letter: the name of the derived stream that did
// not take it, the sequence of its log message, and its part of what is derived from that one. "*"
// and ">" may stand for the tokens.
func DeadLetterSubject(world, stream, logSeq, part string) string {
	return "deadletter.v1." + world + "." + stream + "." + logSeq + "." + part
}

// AlertStream returns the name of the stream of a world's alerts.
func AlertStream(world string) string { return "WORLD_" + world + "_ALERTS" }

// AlertSubject returns the subject of the alerts with a code. "*" may stand for it.
func AlertSubject(world, code string) string { return "alerts.v1." + world + "." + code }

func logSubject(world, townToken string) string { return "world." + world + ".log." + townToken }
func refusedSubject(world, townToken string) string {
	return "world." + world + ".refused." + townToken
}
func controlSubject(world string) string    { return "world." + world + ".control" }
func signalSubject(world string) string     { return "world." + world + ".signal" }
func runSubject(world, runID string) string { return "world." + world + ".run." + runID }

// worldToken stands for the town in the subjects of events that are of no town, such as a pause of the
// world. No town has this token.
const worldToken = "=world"

// tokenOf returns the town token of a record's events.
func tokenOf(townID string) string {
	if townID == "" {
		return worldToken
	}
	return TownToken(townID)
}

// maxToken bounds a town token: NATS bounds its control line.
const maxToken = 128

// TownToken returns the subject token of a town: the UTF-8 of its id with every byte outside
// A-Z a-z 0-9 _ - percent-encoded; one longer than 128 bytes becomes '=' and the lower-case hex
// SHA-256 of the id. Two ids have the same token only if they are the same.
func TownToken(townID string) string {
	token := percentEncode(townID)
	if len(token) <= maxToken {
		return token
	}
	sum := sha256.Sum256([]byte(townID))
	return "=" + hex.EncodeToString(sum[:])
}

func percentEncode(s string) string {
	plain := 0
	for plain < len(s) && isPlain(s[plain]) {
		plain++
	}
	if plain == len(s) {
		return s
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(3 * len(s))
	for i := 0; i < len(s); i++ {
		if c := s[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&0xF]})
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// percentDecode undoes percentEncode.
func percentDecode(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("worldengine: %q ends in the middle of a percent-encoded byte", s)
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", fmt.Errorf("worldengine: %q has a bad percent-encoded byte: %w", s, err)
		}
		b.WriteByte(c[0])
		i += 2
	}
	return b.String(), nil
}

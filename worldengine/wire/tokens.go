package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
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
	return TownToken(townID)
}

// maxToken bounds a town token in bytes, since NATS bounds the line with the subject.
const maxToken = 128

// TownToken returns the subject token of a town: the UTF-8 of its id with every byte outside A-Z
// a-z 0-9 _ - percent-encoded. Instead of a token of more than 128 bytes, it returns '=' and the
// lower-case hex SHA-256 of the id. Two ids have the same token only if they are the same.
func TownToken(townID string) string {
	token := PercentEncode(townID)
	if len(token) <= maxToken {
		return token
	}
	sum := sha256.Sum256([]byte(townID))
	return "=" + hex.EncodeToString(sum[:])
}

// RunToken returns the subject token of a run, which is made like a town token.
func RunToken(runID string) string { return TownToken(runID) }

// RunIDOf returns the run that RunIDHeader of a log message names; "" if it names none. The header has the
// runId percent-encoded, since a producer may choose any text.
func RunIDOf(header interface{ Get(name string) string }) string {
	runID, err := PercentDecode(header.Get(RunIDHeader))
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
		tokens = append(tokens, TownToken(id))
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
	return TownToken(actorID)
}

// PercentEncode returns s with every byte outside A-Z a-z 0-9 _ - as % and two upper-case hex
// digits.
func PercentEncode(s string) string {
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
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '-'
}

// PercentDecode undoes PercentEncode. It returns an error for a string that is cut off within an
// encoded byte, or lacks two hex digits after a %.
func PercentDecode(s string) (string, error) {
	decoded, err := url.PathUnescape(s)
	if err != nil {
		return "", fmt.Errorf("worldengine: %q has a bad percent-encoded byte: %w", s, err)
	}
	return decoded, nil
}

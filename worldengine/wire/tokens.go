package wire

import (
	"crypto/sha256"
	"encoding/hex"

	"worldengine/worldengine/internal/kit/percent"
)

// maxToken bounds a town token in bytes, since NATS bounds the line with the subject.
const maxToken = 128

// TownToken returns the subject token of a town: the UTF-8 of its id with every byte outside A-Z
// a-z 0-9 _ - percent-encoded. Instead of a token of more than 128 bytes, it returns '=' and the
// lower-case hex SHA-256 of the id. Two ids have the same token only if they are the same.
func TownToken(townID string) string {
	token := percent.Encode(townID)
	if len(token) <= maxToken {
		return token
	}
	sum := sha256.Sum256([]byte(townID))
	return "=" + hex.EncodeToString(sum[:])
}

package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"worldengine/schemas"
)

// tokenPrefix is the prefix of every token, so that a token is recognised where it should not be.
const tokenPrefix = "mcp_"

// NewToken draws a token, with which a host of a language model signs in over HTTP, and returns it with
// its hash for an access file. It has 130 random bits, so a plain SHA-256 hides it.
func NewToken() (token, hash string) {
	token = tokenPrefix + rand.Text()
	return token, HashToken(token)
}

// HashToken returns the hash of a token as an access file has it: SHA-256 in lower-case hex. It is ""
// for a text that NewToken cannot have drawn.
func HashToken(token string) string {
	if !strings.HasPrefix(token, tokenPrefix) || len(token) != len(tokenPrefix)+len(rand.Text()) {
		return ""
	}
	hash := sha256.Sum256([]byte(token))
	return hex.EncodeToString(hash[:])
}

// tokenHash is a hash of HashToken.
var tokenHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

// tokens checks the hashes of a user's tokens.
func (r *reader) tokens(u *User, at string) {
	if u.Tokens != nil && len(u.Tokens) == 0 {
		r.Add(at+"/tokens", "must be a list of at least one hash; leave it out for none")
	}
	for i, hash := range u.Tokens {
		if !tokenHash.MatchString(string(hash)) {
			r.Add(at+schemas.Pointer("tokens", i), "must be the hash of a token, and never a token: "+
				"handoffd password --token makes one")
		}
	}
}

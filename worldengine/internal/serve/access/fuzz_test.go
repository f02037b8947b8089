package access

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"

	"worldengine/worldengine/internal/kit/protocol"
)

// An access file, whatever is in it, is refused as a whole, or has users of different
// names, each with a known role and exactly one credential. Files that it names are not read here.
func FuzzReadFile(f *testing.F) {
	for _, seed := range []string{
		`{"users":[{"name":"a","role":"agent","passwordHash":"` + hash +
			`","towns":["Town 1"],"actors":["m"]}]}`,
		`{"users":[{"name":"p","role":"plugin","nkey":"` + nkey +
			`"},{"name":"o","role":"operator","passwordEnv":"W"}]}`,
		`{"tls":{"certFile":"","keyFile":7},"users":[{}]}`, `{"users":[{"name":"a","name":"b"}]}`,
		`{"users":{}}`, `[]`, ``,
		`{"users":[{"name":"handoffd-x","role":"king","password":"x"}]}`,
		`{"users":[null,[],"",{"towns":[]}]}`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := schemas.Decode(data, schemas.Limits{})
		if err == nil && namesFiles(t, tree) {
			return
		}
		cfg, err := parse(data, dir, func(string) (string, bool) { return sentinel, true })
		if err != nil {
			require.NotContains(t, err.Error(), sentinel)
			return
		}
		names := map[string]bool{}
		for _, u := range cfg.Users {
			require.False(t, names[u.Name])
			names[u.Name] = true
			require.Contains(t, protocol.Roles(), u.Role)
			credentials := 0
			for _, given := range []bool{u.NKey != "", u.PasswordHash != "", u.Password != ""} {
				if given {
					credentials++
				}
			}
			require.Equal(t, 1, credentials)
		}
		require.NotEmpty(t, names)
	})
}

// namesFiles reports whether a file may name another one.
func namesFiles(t *testing.T, tree any) bool {
	plain, err := json.Marshal(tree)
	require.NoError(t, err)
	return bytes.Contains(plain, []byte(`File":`))
}

package access

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

// FuzzReadFile: nothing in an access file makes reading it panic; it is refused as a whole, with
// places, or has users that may be told apart, each with a known role and exactly one credential.
// Files that it points to are not followed here.
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
		if err == nil && pointsToFiles(tree) {
			return
		}
		cfg, err := parse(data, dir, func(string) (string, bool) { return sentinel, true })
		if err != nil {
			var invalid *schemas.ValidationError
			require.True(t, errors.As(err, &invalid))
			require.NotEmpty(t, invalid.Violations)
			require.NotContains(t, err.Error(), sentinel)
			return
		}
		names := map[string]bool{}
		for _, u := range cfg.Users {
			require.False(t, names[u.Name])
			names[u.Name] = true
			require.Contains(t, Roles(), u.Role)
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

// pointsToFiles says whether a member of a file names another file.
func pointsToFiles(tree any) bool {
	switch v := tree.(type) {
	case map[string]any:
		for name, value := range v {
			if name == "passwordFile" || name == "certFile" || name == "keyFile" ||
				name == "clientCAFile" ||
				pointsToFiles(value) {
				return true
			}
		}
	case []any:
		for _, value := range v {
			if pointsToFiles(value) {
				return true
			}
		}
	}
	return false
}

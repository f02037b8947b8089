package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/natstest"
)

const (
	hash     = "$2a$11$oW3ZBTuFuB9C2kBJWvOFuuJ0W3cVdkFxGnyTn4ICVWZ1IzJbXbm0S"
	nkey     = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
	sentinel = "sentinel-password"
)

func nothing(string) (string, bool) { return "", false }

func readText(t *testing.T, text string, lookup func(string) (string, bool)) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return ReadFile(file, lookup)
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte(sentinel+"\n"), 0o600))
	file := filepath.Join(dir, "access.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"users": [
		{"name": "a", "role": "agent", "passwordHash": "`+hash+
		`", "towns": ["Town 1"], "actors": ["m"], "read": ["t"]},
		{"name": "p", "role": "plugin", "nkey": "`+nkey+`"},
		{"name": "o", "role": "operator", "passwordFile": "pw"},
		{"name": "w", "role": "observer", "passwordEnv": "W"}]}`), 0o600))
	cfg, err := ReadFile(file, func(name string) (string, bool) { return sentinel + name, true })
	require.NoError(t, err)
	require.Equal(t, []User{
		{Name: "a", Role: Agent, PasswordHash: hash, Towns: []string{"Town 1"},
			Actors: []string{"m"},
			Read:   []string{"t"}},
		{Name: "p", Role: Plugin, NKey: nkey},
		{Name: "o", Role: Operator, Password: sentinel},
		{Name: "w", Role: Observer, Password: sentinel + "W", PasswordEnv: "W"},
	}, cfg.Users)
	shown, err := json.Marshal(cfg)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", cfg, cfg, cfg, shown), sentinel)
}

// The names of files in an access file are relative to its directory, unless they are absolute.
func TestReadFile_Files(t *testing.T) {
	t.Parallel()
	cert, key := natstest.Certificate(t)
	dir := t.TempDir()
	for name, from := range map[string]string{"ca.pem": cert, "cert.pem": cert, "key.pem": key} {
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	file := filepath.Join(dir, "access.json")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{
		"tls": {"certFile": "cert.pem", "keyFile": %q, "clientCAFile": "ca.pem"},
		"users": [{"name": "p", "role": "plugin", "nkey": %q}]}`, key, nkey), 0o600))
	cfg, err := ReadFile(file, nothing)
	require.NoError(t, err)
	require.Equal(t, TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: key,
		ClientCAFile: filepath.Join(dir, "ca.pem")}, cfg.TLS)
}

// A password has at least twelve bytes, and is no hash, which would be taken for the password.
func TestReadFile_Passwords(t *testing.T) {
	t.Parallel()
	const file = `{"users": [{"name": "a", "role": "agent", "passwordEnv": "P"}]}`
	for password, want := range map[string]bool{
		"twelve bytes": true, "eleven byte": false, "": false, hash: false,
		"two\nlines of it": false,
	} {
		_, err := readText(t, file, func(string) (string, bool) { return password, true })
		require.Equal(t, want, err == nil, "%q: %v", password, err)
	}
}

// Approvers may be bound to the towns that they decide about, as agents and plugins are.
func TestReadFile_RolesWithTowns(t *testing.T) {
	t.Parallel()
	for _, role := range Roles() {
		_, err := readText(t, `{"users": [{"name": "a", "role": "`+string(role)+
			`", "nkey": "`+nkey+`", "towns": ["t"]}]}`, nothing)
		require.Equal(t, role == Agent || role == Plugin || role == Approver, err == nil,
			"%s: %v", role, err)
	}
}

// Every mistake has its path, and no message quotes a value that might be a secret.
func TestReadFile_Mistakes(t *testing.T) {
	t.Parallel()
	user := func(members string) string {
		return `{"users": [{"name": "a", "role": "agent", ` + members + `}]}`
	}
	const ok = `"nkey": "` + nkey + `"`
	for text, paths := range map[string][]string{
		`{`:              {""},
		`[]`:             {""},
		`{}`:             {"/users"},
		`{"users": []}`:  {"/users"},
		`{"users": [1]}`: {"/users/0"},
		`{"user": [], "users": [{}]}`: {"/user", "/users/0", "/users/0/name",
			"/users/0/role"},
		user(`"password": "` + sentinel + `"`): {"/users/0", "/users/0/password"},
		user(`"passwordHash": "` + sentinel +
			`"`): {"/users/0/passwordHash"},
		user(`"nkey": "` + sentinel +
			`"`): {"/users/0/nkey"},
		user(`"passwordEnv": "SHORT"`):       {"/users/0/passwordEnv"},
		user(`"passwordEnv": "NONE"`):        {"/users/0/passwordEnv"},
		user(`"passwordEnv": "LINES"`):       {"/users/0/passwordEnv"},
		user(`"passwordFile": "/nowhere"`):   {"/users/0/passwordFile"},
		user(ok + `, "passwordEnv": "LONG"`): {"/users/0"},
		user(ok + `, "towns": []`):           {"/users/0/towns"},
		user(ok + `, "towns": "t"`):          {"/users/0/towns"},
		user(ok + `, "towns": ["t", 1]`):     {"/users/0/towns/1"},
		user(ok + `, "read": []`):            {"/users/0/read"},
		`{"users": [{"name": "a", "role": "operator", "read": ["t"], ` + ok +
			`}]}`: {"/users/0/read"},
		user(ok + `, "actors": [""]`): {"/users/0/actors/0"},
		`{"users": [{"name": "a b", "role": "king", ` + ok +
			`}]}`: {"/users/0/name", "/users/0/role"},
		`{"users": [{"name": "handoffd-engine", "role": "agent", ` + ok +
			`}]}`: {"/users/0/name"},
		`{"users": [{"name": "a", "role": "observer", "towns": ["t"], "actors": ["m"], ` + ok +
			`}]}`: {"/users/0/actors", "/users/0/towns"},
		`{"users": [{"name": "a", "role": "agent", ` + ok + `}, {"name": "a", "role": "agent", ` +
			ok +
			`}]}`: {"/users/1/name", "/users/1/nkey"},
		`{"tls": {}, "users": [{"name": "a", "role": "agent", ` + ok +
			`}]}`: {"/tls/certFile", "/tls/keyFile"},
		`{"tls": {"certFile": "x", "keyFile": "y"}, "users": [{"name": "a", "role": "agent", ` +
			ok + `}]}`: {"/tls"},
	} {
		_, err := readText(t, text, func(name string) (string, bool) {
			value := map[string]string{"SHORT": "sentinel-pa", "LINES": sentinel + "\nx",
				"LONG": sentinel}[name]
			return value, value != ""
		})
		var invalid *schemas.ValidationError
		require.True(t, errors.As(err, &invalid), "%s: %v", text, err)
		var found []string
		for _, v := range invalid.Violations {
			found = append(found, v.Path)
		}
		require.Equal(t, paths, found, "%s: %v", text, err)
		require.NotContains(t, err.Error(), "sentinel")
	}
	_, err := ReadFile("/nowhere.json", nothing)
	require.ErrorContains(t, err, "/nowhere.json")
	_, err = readText(t, user(`"password": "`+sentinel+`"`), nothing)
	require.ErrorContains(t, err, "give passwordHash, passwordEnv or passwordFile")
	_, err = readText(t, `{"users": [{"name": 1}]}`, nothing)
	require.ErrorContains(t, err, "must be a non-empty string")
}

// The example is a valid file, once its passwords are there.
func TestReadFile_Example(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../examples/access/access.json")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "access.json"), data, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "frontier.password"),
		[]byte(sentinel), 0o600))
	cfg, err := ReadFile(filepath.Join(dir, "access.json"), func(string) (string, bool) {
		return sentinel, true
	})
	require.NoError(t, err)
	require.Len(t, cfg.Users, 4)
}

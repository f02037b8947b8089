package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
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
		{"name": "p", "role": "plugin", "nkey": "`+nkey+`", "worlds": ["w", "season-*"]},
		{"name": "o", "role": "operator", "passwordFile": "pw"},
		{"name": "w", "role": "observer", "passwordEnv": "W"}]}`), 0o600))
	cfg, err := ReadFile(file, func(name string) (string, bool) { return sentinel + name, true })
	require.NoError(t, err)
	require.Equal(t, []User{
		{Name: "a", Role: wire.Agent, PasswordHash: hash, Towns: []string{"Town 1"},
			Actors: []string{"m"},
			Read:   []string{"t"}},
		{Name: "p", Role: wire.Plugin, NKey: nkey, Worlds: []string{"w", "season-*"}},
		{Name: "o", Role: wire.Operator, Password: sentinel, PasswordFile: "pw"},
		{Name: "w", Role: wire.Observer, Password: sentinel + "W", PasswordEnv: "W"},
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

// testdata/files.txt has files with their violations. No message quotes a secret.
func TestReadFile_Violations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/files.txt")
	require.NoError(t, err)
	table := strings.ReplaceAll(string(text), "ROLES", fmt.Sprint(protocol.Roles()))
	schemastest.Table(table, func(file string, want []string) {
		assert.Equal(t, want, found(t, file), file)
	})
	_, err = ReadFile("/nowhere.json", nothing)
	require.ErrorContains(t, err, "/nowhere.json")
}

// found returns the violations of a file of the table.
func found(t *testing.T, file string) []string {
	t.Helper()
	if members, user := strings.CutPrefix(file, "user "); user {
		for _, member := range []string{`"name": "a"`, `"role": "agent"`, `"nkey": "NKEY"`} {
			if name, _, _ := strings.Cut(member, ":"); !strings.Contains(members, name+":") {
				members += ", " + member
			}
		}
		file = `{"users": [{` + members + `}]}`
	}
	file = strings.NewReplacer("NKEY", nkey, "HASH\"", hash+"\"", "HASH64", strings.Repeat("0a", 32)).Replace(file)
	_, err := readText(t, file, func(name string) (string, bool) {
		value := map[string]string{"SHORT": "sentinel-pa", "LINES": sentinel + "\nx",
			"LONG": sentinel, "HASHED": hash}[name]
		return value, value != ""
	})
	if err == nil {
		return []string{"ok"}
	}
	require.NotContains(t, err.Error(), "sentinel")
	invalid, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(t, ok, "%v", err)
	var texts []string
	for _, v := range invalid.Violations {
		texts = append(texts, v.Path+": "+v.Message)
	}
	return texts
}

// The example is a valid file, once its passwords are there.
func TestReadFile_Example(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../../examples/access/access.json")
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

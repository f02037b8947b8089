package rcon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine/rcon"
)

// read writes a configuration and the password beside it, and reads them.
func read(t *testing.T, text, secret string) (rcon.Config, error) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "password"), []byte(secret), 0o600))
	file := filepath.Join(dir, "rcon.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return rcon.ReadConfig(file, func(name string) (string, bool) {
		if name != "RCON_PASSWORD" {
			return "", false
		}
		return secret, true
	})
}

// violations returns the violations of err as "path: message".
func violations(t *testing.T, err error) []string {
	t.Helper()
	invalid, ok := errors.AsType[*schemas.ValidationError](err)
	require.True(t, ok, "%v", err)
	var list []string
	for _, v := range invalid.Violations {
		list = append(list, v.Path+": "+v.Message)
	}
	return list
}

func TestReadConfig(t *testing.T) {
	t.Parallel()
	for source, end := range map[string]string{`"passwordFile": "password"`: "\n",
		`"passwordFile" : "password"`: "\r\n", `"passwordEnv": "RCON_PASSWORD"`: ""} {
		cfg, err := read(t, `{
			"address": "127.0.0.1:25575", `+source+`, "timeoutMs": 250,
			"names": { "wall": "the wall" },
			"commands": { "PROJECT_ADVANCE": [ { "run": "say {argument}", "expect": "^$" }, { "run": "list" } ] }
		}`, password+end)
		require.NoError(t, err)
		require.Equal(t, rcon.Config{
			Address: "127.0.0.1:25575", Password: password, Timeout: 250 * time.Millisecond,
			Names: map[string]string{"wall": "the wall"},
			Commands: map[handoff.ProposalType][]rcon.Template{
				handoff.AdvanceProject: {{Run: "say {argument}", Expect: "^$"}, {Run: "list"}},
			},
		}, cfg)
		open(t, cfg)
	}
}

// The error of a file or a variable without a password names the member, and never its value.
func TestReadConfig_NoPassword(t *testing.T) {
	t.Parallel()
	const text = `{"address":"localhost:1",%q:%q,"commands":{"TOWNSFOLK_TALK":[{"run":"list"}]}}`
	requireFound := func(member, value, secret, want string) {
		_, err := read(t, fmt.Sprintf(text, member, value), secret)
		require.ErrorContains(t, err, member)
		require.ErrorContains(t, err, want, "%q", secret)
		require.NotContains(t, err.Error(), "hunter2")
	}
	const defect = "must lead to a password of 1 to 1446 bytes in one line"
	for _, secret := range []string{
		"", "\n", "two\nlines", "hunter2\x00", "hunter2\xff", "hunter2" + strings.Repeat("a", 1440),
		"hunter2\u202e",
	} {
		requireFound("passwordFile", "password", secret, defect)
		requireFound("passwordEnv", "RCON_PASSWORD", secret, defect)
	}
	requireFound("passwordEnv", "ANOTHER", password, defect)
	requireFound("passwordFile", "nowhere", password, "cannot be read: open ")
	absolute := filepath.Join(t.TempDir(), "nowhere")
	requireFound("passwordFile", absolute, password, "cannot be read: open "+absolute)
	requireFound("passwordFile", "/dev/zero", password,
		"cannot be read: read /dev/zero: it has more than")
	_, err := rcon.ReadConfig(absolute, os.LookupEnv)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = rcon.ReadConfig("/dev/zero", os.LookupEnv)
	require.ErrorContains(t, err, "/dev/zero: it has more than")
}

// testdata/configs.txt has configurations with their violations. No message has a secret.
func TestReadConfig_Violations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/configs.txt")
	require.NoError(t, err)
	table := strings.ReplaceAll(string(text), "TYPES", fmt.Sprint(handoff.ProposalTypes()))
	schemastest.Table(table, func(change string, want []string) {
		requireViolations(t, change, want)
	})
}

func requireViolations(t *testing.T, change string, want []string) {
	t.Helper()
	member, value, _ := strings.Cut(change, " ")
	switch member {
	case "name":
		member, value = "names", `{"a/b":`+value+`}`
	case "run":
		member, value = "commands", `{"PROJECT_ADVANCE":[{"run":"list"},{"run":`+value+`}]}`
	}
	text := value
	if member != "config" {
		members := map[string]json.RawMessage{
			"address": []byte(`"localhost:1"`), "passwordEnv": []byte(`"RCON_PASSWORD"`),
			"commands": []byte(`{"TOWNSFOLK_TALK":[{"run":"list"}]}`),
		}
		members[member] = []byte(value)
		data, err := json.Marshal(members)
		require.NoError(t, err)
		text = string(data)
	}
	cfg, err := read(t, text, password)
	if err == nil {
		var console *rcon.Console
		if console, err = rcon.New(cfg); err == nil {
			console.Close()
			require.Equal(t, want, []string{"ok"}, change)
			return
		}
	}
	if text, inReading := strings.CutPrefix(want[0], "read "); inReading {
		require.ErrorContains(t, err, text, change)
	} else {
		require.Equal(t, want, violations(t, err), change)
	}
	require.NotContains(t, err.Error(), "hunter2")
	requireNoSecret(t, err)
}

// Lengths are bounded, and so are the values that no file can have.
func TestNew_Bounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1443)
	for _, c := range []struct {
		change func(*rcon.Config)
		want   string
	}{
		{func(c *rcon.Config) { c.Timeout = rcon.MaxTimeout + 1 }, "/timeoutMs: must be in 1..60000"},
		{func(c *rcon.Config) { c.Password = "" },
			"/password: must be 1 to 1446 bytes of text in one line"},
		{func(c *rcon.Config) { c.Names = map[string]string{"": long[:257]} }, "/names/: must be 1 to 256"},
		{func(c *rcon.Config) { c.Names = map[string]string{"": "a\xff"} }, "/names/: must be 1 to 256"},
		{func(c *rcon.Config) { c.Names = map[string]string{"": long[:256]} }, ""},
		{runs("say \xff"), "must be text in one line"},
		{runs(""), "must begin with the name of a command"},
		{runs("say " + long), "must have at most 1446 bytes, but may have 1447 with its values"},
		{runs("say " + long[1:]), ""},
		{runs("say {title}{day} " + long[:1200]),
			"must have at most 1446 bytes, but may have 1477 with its values"},
		{runs("say {title}" + long[:1186]), ""},
		{runs(slices.Repeat([]string{"list"}, 33)...), "must have 1 to 32 commands"},
	} {
		cfg := config("localhost:1", "list")
		c.change(&cfg)
		_, err := rcon.New(cfg)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.Contains(t, strings.Join(violations(t, err), "\n"), c.want)
	}
}

// runs changes the commands.
func runs(commands ...string) func(*rcon.Config) {
	return func(c *rcon.Config) { c.Commands = config("", commands...).Commands }
}

// TestSecret_NotShown, however a configuration is written.
func TestSecret_NotShown(t *testing.T) {
	t.Parallel()
	cfg := config("localhost:1", "list")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("text", "config", cfg, "password", cfg.Password)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("json", "config", cfg, "password", cfg.Password)
	data, err := json.Marshal(cfg)
	require.NoError(t, err)
	written := log.String() + string(data) + fmt.Sprint(cfg, cfg.Password) +
		fmt.Sprintf("%v %+v %#v %s %q %x %d", cfg, cfg, cfg, cfg.Password, cfg.Password,
			cfg.Password, cfg.Password)
	require.NotContains(t, written, password)
	require.NotContains(t, written, fmt.Sprintf("%x", password))
	require.Equal(t, 12, strings.Count(written, "(secret)"))
}

// TestReadConfig_Manual is the configuration that operators copy.
func TestReadConfig_Manual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../../../docs/rcon.md")
	require.NoError(t, err)
	_, example, found := strings.Cut(string(manual), "```json\n")
	require.True(t, found)
	example, _, found = strings.Cut(example, "```")
	require.True(t, found)
	cfg, err := read(t, strings.Replace(example, `"rcon-password"`, `"password"`, 1), password+"\n")
	require.NoError(t, err)
	open(t, cfg)
	require.NotEmpty(t, cfg.Commands)
	// Its commands run in the example world: no value of that is refused as unsafe.
	var snapshots []json.RawMessage
	require.NoError(t, json.Unmarshal(worlds.Frontier, &snapshots))
	before, err := town.Parse(snapshots[0], schemas.Limits{})
	require.NoError(t, err)
	cfg.Address = "127.0.0.1:1" // a safe command does not reach a game
	console := open(t, cfg)
	for _, project := range before.Snapshot.Projects {
		h := towntest.Propose(t, before, handoff.AdvanceProject, project.ID)
		_, err = console.Apply(t.Context(), apply.NewCommand(h, "run", before, before), allow)
		require.ErrorIs(t, err, apply.ErrUnavailable, "%s, %q, is refused", project.ID,
			project.Name)
	}
}

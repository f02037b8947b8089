package rcon_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/rcon"
	"worldengine/worldengine/town"
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

func TestReadConfig_Shape(t *testing.T) {
	t.Parallel()
	const good = `"address":"localhost:1","passwordEnv":"RCON_PASSWORD","commands":{}`
	for text, want := range map[string][]string{
		`[]`: {": must be an object", ": must have either passwordFile or passwordEnv"},
		`{}`: {": must have either passwordFile or passwordEnv", "/address: is required",
			"/commands: is required"},
		`{` + good + `,"passwordFile":"password"}`: {": must have either passwordFile or " +
			"passwordEnv"},
		`{` + good + `,"password":"hunter2"}`: {
			"/password: is not allowed here: give passwordFile or passwordEnv"},
		`{` + good + `,"timeout":1,"a/b":2}`: {"/a~1b: is not allowed here",
			"/timeout: is not allowed here"},
		`{` + good + `,"timeoutMs":0}`:     {"/timeoutMs: must be an integer in 1..60000"},
		`{` + good + `,"timeoutMs":1.5}`:   {"/timeoutMs: must be an integer in 1..60000"},
		`{` + good + `,"timeoutMs":60001}`: {"/timeoutMs: must be an integer in 1..60000"},
		`{` + good + `,"timeoutMs":"5s"}`:  {"/timeoutMs: must be an integer in 1..60000"},
		`{` + good + `,"names":[]}`:        {"/names: must be an object"},
		`{` + good + `,"names":{"a":"","b":7}}`: {
			"/names/a: must be a non-empty string", "/names/b: must be a non-empty string"},
		`{"address":7,"passwordEnv":"RCON_PASSWORD","commands":[]}`: {
			"/address: must be a non-empty string", "/commands: must be an object"},
		`{"address":"a","passwordEnv":"RCON_PASSWORD","commands":{"A":{},"B":["say",{"run":7,"expect":""},{"Run":"a"}]}}`: {
			"/commands/A: must be a list of commands", "/commands/B/0: must be an object",
			"/commands/B/1/expect: must be a non-empty string",
			"/commands/B/1/run: must be a non-empty string",
			"/commands/B/2/Run: is not allowed here", "/commands/B/2/run: is required"},
		`{` + good + `,"address":"hunter2"}`: {"/address: is a second member of this name, at " +
			"byte 69"},
	} {
		_, err := read(t, text, password)
		require.Equal(t, want, violations(t, err), text)
		require.ErrorContains(t, err, "rcon.json")
		require.NotContains(t, err.Error(), "hunter2")
		requireNoSecret(t, err)
	}
}

func TestReadConfig_NoPassword(t *testing.T) {
	t.Parallel()
	const text = `{"address":"localhost:1",%q:%q,"commands":{"TOWNSFOLK_TALK":[{"run":"list"}]}}`
	for _, secret := range []string{
		"", "\n", "two\nlines", "hunter2\x00", "hunter2\xff", "hunter2" + strings.Repeat("a", 1440),
		"hunter2\u202e",
	} {
		for _, source := range [][2]string{{"passwordFile", "password"},
			{"passwordEnv", "RCON_PASSWORD"}} {
			_, err := read(t, fmt.Sprintf(text, source[0], source[1]), secret)
			require.Equal(t, []string{
				"/" + source[0] +
					": must lead to a password, which must be 1 to 1446 bytes of text in one line",
			}, violations(t, err), "%q", secret)
			require.NotContains(t, err.Error(), "hunter2")
		}
	}
	_, err := read(t, fmt.Sprintf(text, "passwordEnv", "ANOTHER"), password)
	require.Len(t, violations(t, err), 1)
	_, err = read(t, fmt.Sprintf(text, "passwordFile", "nowhere"), password)
	require.Contains(t, violations(t, err)[0],
		"/passwordFile: must be a file that can be read: open ")
	absolute := filepath.Join(t.TempDir(), "nowhere")
	_, err = read(t, fmt.Sprintf(text, "passwordFile", absolute), password)
	require.Contains(t, violations(t, err)[0], "open "+absolute)
	_, err = rcon.ReadConfig(absolute, os.LookupEnv)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = rcon.ReadConfig("/dev/zero", os.LookupEnv)
	require.ErrorContains(t, err, "/dev/zero: it has more than")
	_, err = read(t, fmt.Sprintf(text, "passwordFile", "/dev/zero"), password)
	require.Contains(t, violations(t, err)[0], "/dev/zero: it has more than")
}

// TestNew_Values: everything that is wrong is found, with its place.
func TestNew_Values(t *testing.T) {
	t.Parallel()
	const aText = ": must be 1 to 256 bytes of letters, digits, single spaces between words, and " +
		"the characters _-.,:!?()+’"
	for _, address := range []string{"", "localhost", ":25575", "localhost:", "localhost:0",
		"localhost:65536", "localhost:http", "::1:25575"} {
		cfg := config(address, "list")
		_, err := rcon.New(cfg)
		require.Equal(t, []string{
			"/address: must be a host and a port in 1..65535, such as 127.0.0.1:25575",
		}, violations(t, err), address)
	}
	_, err := rcon.New(rcon.Config{Address: "[::1]:25575", Timeout: rcon.MaxTimeout + 1})
	require.Equal(t, []string{
		"/commands: must have the commands of at least one proposal type",
		"/password: must be 1 to 1446 bytes of text in one line", "/timeoutMs: must be in 1..60000",
	}, violations(t, err))
	cfg := config("localhost:25575", "list")
	cfg.Names = map[string]string{}
	for _, text := range []string{
		"", " a", "a ", "a  b", "a\nb", "a\tb", "a/b", `a"b`, "a'b", `a\b`, "@a",
		"{town}", "[a]", "a;b", "a&b", "a$b", "§a",
		"a\u00a0b", "a\u200b", "a\xff", strings.Repeat("a", 257),
	} {
		cfg.Names = map[string]string{"a/b": text}
		_, err := rcon.New(cfg)
		require.Equal(t, []string{"/names/a~1b" + aText}, violations(t, err), "%q", text)
	}
	for _, text := range []string{"a", "Grüße aus Köln!", "東の壁", "The baker’s (old) wall: no. 7",
		strings.Repeat("a", 256)} {
		cfg.Names = map[string]string{"": text}
		open(t, cfg)
	}
}

func TestNew_Commands(t *testing.T) {
	t.Parallel()
	const line = "must be text in one line, without control characters"
	const begin = "must begin with the name of a command, without a slash or space before it"
	const all = "{actor} {argument} {day} {dread} {hope} {progress} {run} {scarcity} {threat} " +
		"{title} {town}"
	for run, want := range map[string]string{
		"": begin, " say": begin, "/say": begin, "//set": begin, "{town}": begin, "@a": begin,
		"#": begin, "é": begin,
		"say\n": line, "say\r": line, "say\tb": line, "say \x00": line,
		"say \x7f": line, "say \u0085": line,
		"say \u2028": line, "say \u200b": line, "say \u202e": line, "say \xff": line,
		"say {twon}":               "has {twon}, but there are only " + all,
		"say { town }":             "has { town }, but there are only " + all,
		"say {town_id}":            "has {town_id}, but there are only " + all,
		"say {Town}":               "has {Town}, but there are only " + all,
		"say{town} a":              "must not have say{town} in the place of a command's name",
		"execute run {argument}":   "must not have {argument} in the place of a command's name",
		"execute run  s{argument}": "must not have s{argument} in the place of a command's name",
		"say " + strings.Repeat("a",
			1443): "must have at most 1446 bytes, but may have 1447 with its values",
		"say {title}{day} " +
			strings.Repeat("a", 1200): "must have at most 1446 bytes, but may have 1477 with its " +
			"values",
		"say " + strings.Repeat("{town}", 6) + "{twelve}": "has {twelve}, but there are only " +
			all,
	} {
		_, err := rcon.New(config("localhost:1", "list", run))
		require.Equal(t, []string{"/commands/PROJECT_ADVANCE/1/run: " + want},
			violations(t, err), "%q", run)
	}
	open(t, config("localhost:1", "say "+strings.Repeat("a", 1442), "say {title}"+
		strings.Repeat("a", 1186)))
}

func TestNew_PlaceholdersOfTypes(t *testing.T) {
	t.Parallel()
	cfg := config("localhost:1", "list")
	cfg.Commands = map[handoff.ProposalType][]rcon.Template{
		handoff.PlanSalvage:     {{Run: "say {title}"}, {Run: "say {progress}"}},
		handoff.TalkToTownsfolk: {},
		handoff.AcceptMission:   {{Run: "say {title}", Expect: "("}, {Run: "say {progress}"}},
		handoff.AdvanceProject:  make([]rcon.Template, 33),
		"GO/HOME":               {{Run: "list"}},
	}
	for i := range 33 {
		cfg.Commands[handoff.AdvanceProject][i].Run = "list"
	}
	_, err := rcon.New(cfg)
	const own = "but commands of this type have only {actor} {argument} {day} {dread} {hope} {run} " +
		"{scarcity} {threat} "
	require.Equal(t, []string{
		fmt.Sprintf("/commands/GO~1HOME: is no proposal type; there are %v", handoff.ProposalTypes()),
		"/commands/MAYOR_ACCEPT_MISSION/0/expect: must be a regular expression: error parsing " +
			"regexp: missing closing ): `(`",
		"/commands/MAYOR_ACCEPT_MISSION/1/run: has {progress}, " + own + "{title} {town}",
		"/commands/PROJECT_ADVANCE: must have 1 to 32 commands; leave the type out to refuse it",
		"/commands/SALVAGE_PLAN/0/run: has {title}, " + own + "{town}",
		"/commands/SALVAGE_PLAN/1/run: has {progress}, " + own + "{town}",
		"/commands/TOWNSFOLK_TALK: must have 1 to 32 commands; leave the type out to refuse it",
	}, violations(t, err))
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
	require.Equal(t, 14, strings.Count(written, "(secret)"))
}

// TestReadConfig_Manual is the configuration that operators copy.
func TestReadConfig_Manual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../docs/rcon.md")
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
		h, err := handoff.New(handoff.Proposal{
			Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: before.Snapshot.TownID,
			Reason:       "because",
			Args:         map[string]string{"projectId": project.ID},
			SnapshotHash: before.Hash, DecisionEpoch: before.Epoch(),
		})
		require.NoError(t, err)
		_, err = console.Apply(t.Context(), apply.NewCommand(h, "run", before, before), begin)
		require.ErrorIs(t, err, apply.ErrUnavailable, "%s, %q, is refused", project.ID,
			project.Name)
	}
}

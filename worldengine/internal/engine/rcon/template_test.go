package rcon_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine/rcon"
)

// rendered returns the command that run gives for c.
func rendered(t *testing.T, c *apply.Command, run string) (string, error) {
	t.Helper()
	cfg := config("127.0.0.1:1", "say hello")
	cfg.Commands = map[handoff.ProposalType][]rcon.Template{c.Type: {{Run: run}}}
	lines, err := open(t, cfg).Render(c)
	if err != nil {
		return "", err
	}
	require.Len(t, lines, 1)
	return lines[0], nil
}

func TestRender_Placeholders(t *testing.T) {
	t.Parallel()
	wall := command(t, "wall")
	for _, row := range []struct {
		c         *apply.Command
		run, want string
	}{
		{wall, "say {town} {actor} {argument}", "say oak-hill mayor-1 wall"},
		{wall, "say {title}", "say the north wall"},
		{wall, "say {day} {progress}", "say 4 50"},
		{wall, "say {threat} {scarcity} {hope} {dread}", "say 70 31 55 10"},
		{wall, "say {run}", "say 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"},
		{wall, "say {{town}}{town}", "say {oak-hill}oak-hill"},
		{wall, "say {} { } {1} {a:b} { \"town\" } } {", "say {} { } {1} {a:b} { \"town\" } } {"},
		{wall, `tellraw @a {"text":"{title}: {progress} %"}`,
			`tellraw @a {"text":"the north wall: 50 %"}`},
		{wall, "execute in minecraft:overworld run say {town}",
			"execute in minecraft:overworld run say oak-hill"},
		{wall, "say Grüße, §a☃", "say Grüße, §a☃"},
		{commandOf(t, handoff.AcceptMission, "quest-1"),
			"say {argument} {title}", "say quest-1 Lanterns"},
		{commandOf(t, handoff.PlanSalvage, "scarcity"),
			"say {argument} {scarcity}", "say scarcity 21"},
		{commandOf(t, handoff.TalkToTownsfolk, "morale-boost"),
			"say {argument} {hope}", "say morale-boost 65"},
	} {
		line, err := rendered(t, row.c, row.run)
		require.NoError(t, err, row.run)
		require.Equal(t, row.want, line)
	}
	cfg := config("127.0.0.1:1", "say {town}: {argument}, {progress}")
	cfg.Names = map[string]string{"oak-hill": "Oak Hill", "5 o'clock\n": "clock (5:00)",
		"50": "never"}
	lines, err := open(t, cfg).Render(command(t, "5 o'clock\n"))
	require.NoError(t, err)
	require.Equal(t, []string{"say Oak Hill: clock (5:00), 50"}, lines)
}

// A value without an entry in the names is an id of harmless characters, or nothing.
func TestRender_IDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "Z-9_", "-1", strings.Repeat("a", 64)} {
		line, err := rendered(t, command(t, id), "say {argument}")
		require.NoError(t, err)
		require.Equal(t, "say "+id, line)
	}
	for _, id := range []string{
		strings.Repeat("a", 65), "a b", " a", "a\n", "\na", "a\nop b", "a\r", "a\x00", "a/b", "/op",
		"@a", "a;b", "a\"b",
		"a'b", `a\b`, "{town}", "a{b", "a:b", "a.b", "§ab", "é", "a\u200b", "a\u2028b", "a\u202e",
		"\xff", "wall,north",
	} {
		c := command(t, "wall")
		c.Args = map[string]string{"projectId": id}
		_, err := rendered(t, c, "say {argument}")
		require.ErrorContains(t, err, "{argument} is ", "%q", id)
		require.NotContains(t, err.Error(), "\n")
		c = command(t, "wall")
		c.TownID, c.ActorID, c.RunID = id, id, id
		for _, run := range []string{"say {town}", "say {actor}", "say {run}"} {
			_, err := rendered(t, c, run)
			require.ErrorContains(t, err, strings.TrimPrefix(run, "say ")+" is ", "%q", id)
		}
	}
}

// A command that does not fit its snapshot renders nothing.
func TestRender_AbsentValues(t *testing.T) {
	t.Parallel()
	c := command(t, "wall")
	c.Args = map[string]string{"projectId": "gate"}
	_, err := rendered(t, c, "say {title}")
	require.ErrorContains(t, err, `{title} is ""`)
	c = commandOf(t, handoff.AcceptMission, "quest-1")
	after := *c.ExpectedSnapshot
	after.Mission = nil
	c.ExpectedSnapshot = &after
	_, err = rendered(t, c, "say {title}")
	require.ErrorContains(t, err, `{title} is ""`)
	c.Args = map[string]string{}
	_, err = rendered(t, c, "say {argument}")
	require.ErrorContains(t, err, `{argument} is ""`)
}

// harmlessID and harmlessText restate in another way which values from outside are harmless.
var (
	harmlessID   = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)
	harmlessText = regexp.MustCompile(
		`\A[\p{L}\p{M}\p{Nd}_.,:!?()+’-]+( [\p{L}\p{M}\p{Nd}_.,:!?()+’-]+)*\z`)
)

// A rendered command is the template with harmless texts in the place of its placeholders, in one
// line, and begins as the operator wrote it.
func FuzzRender(f *testing.F) {
	f.Add("say {argument} {title}", "wall", "oak-hill", "North Wall", "north", int64(4), 0.5)
	f.Add("{argument} {title}", "op", "a\nb", "", "\n", int64(1<<53), 1.0)
	f.Add("execute run {town}", "stop", "stop", "stop", "a  b", int64(0), 0.0)
	f.Add("/say {{town}}{ town }", "{day}", "{town}", "{day}", "{day}", int64(7), 0.25)
	f.Add("say "+strings.Repeat("{title}", 6), "a", "b", "c", strings.Repeat("☃", 85),
		int64(7), 0.25)
	f.Fuzz(func(t *testing.T, run, argument, townID, title, name string, day int64,
		progress float64) {
		cfg := config("127.0.0.1:1", run)
		cfg.Names = map[string]string{title: name}
		console, err := rcon.New(cfg)
		if err != nil {
			_, ok := errors.AsType[*schemas.ValidationError](err)
			require.True(t, ok)
			return
		}
		if day < 0 || day > town.MaxDay || !(progress >= 0 && progress <= 1) {
			return // no snapshot
		}
		c := &apply.Command{
			Type: handoff.AdvanceProject, TownID: townID, ActorID: name, RunID: title,
			Args: map[string]string{"projectId": argument}, Command: "project advance",
			ExpectedSnapshot: &town.Snapshot{
				Day: day, Projects: []town.Project{{ID: argument, Name: title, Progress: progress}},
			},
		}
		lines, err := console.Render(c)
		if err != nil {
			return
		}
		requireHarmless(t, run, lines[0], cfg.Names, map[string]string{
			"{town}": townID, "{actor}": name, "{run}": title, "{argument}": argument,
			"{title}": title,
		})
	})
}

// requireHarmless parses line by its template run.
func requireHarmless(t *testing.T, run, line string, names, texts map[string]string) {
	t.Helper()
	require.LessOrEqual(t, len(line), rcon.MaxCommand)
	require.True(t, utf8.ValidString(line))
	require.False(t, strings.ContainsFunc(line, unicode.IsControl))
	require.Regexp(t, `\A[A-Za-z0-9_-]`, line)
	require.Equal(t, strings.Fields(run)[0], strings.Fields(line)[0])
	var pattern strings.Builder
	var values []string
	end := 0
	for _, at := range regexp.MustCompile(`\{[a-z]+\}`).FindAllStringIndex(run, -1) {
		pattern.WriteString(regexp.QuoteMeta(run[end:at[0]]))
		end = at[1]
		outside, ok := texts[run[at[0]:at[1]]]
		if !ok {
			pattern.WriteString(`[0-9]{1,16}`)
			continue
		}
		value, named := names[outside]
		if named {
			require.Regexp(t, harmlessText, value)
		} else {
			value = outside
			require.Regexp(t, harmlessID, value)
		}
		values = append(values, value)
		pattern.WriteString("(" + regexp.QuoteMeta(value) + ")")
	}
	pattern.WriteString(regexp.QuoteMeta(run[end:]))
	match := regexp.MustCompile(`\A` + pattern.String() + `\z`).FindStringSubmatch(line)
	require.NotNil(t, match, "%q is not %q", line, run)
	require.Equal(t, values, append([]string(nil), match[1:]...))
}

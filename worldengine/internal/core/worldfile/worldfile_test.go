package worldfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	worlds "worldengine/testdata/worlds"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/worldfile"
)

// snapshot is a valid snapshot.v1 of a town.
func snapshot(townID string) string {
	return fmt.Sprintf(`{"schemaVersion":"snapshot.v1","day":15,"townId":%q,"mission":null,`+
		`"sideQuests":[],"pressure":{"threat":0,"scarcity":0,"hope":1,"dread":0},"projects":[],`+
		`"latestNetherEvent":null}`, townID)
}

// anyBinding lets a town have any binding.
func anyBinding(apply.Binding) error { return nil }

// noConsole refuses rcon as an engine without a console does.
func noConsole(b apply.Binding) error {
	if b != apply.RCON {
		return nil
	}
	return schemas.Invalid(schemas.TownPutRequest,
		schemas.Violation{Path: "/apply", Message: "must not be rcon: there is no console"})
}

func TestParse_Elements(t *testing.T) {
	t.Parallel()
	advances := &approval.Policy{Types: []handoff.ProposalType{handoff.AdvanceProject}}
	for _, row := range []struct {
		name, element string
		binding       apply.Binding
		approval      *approval.Policy
	}{
		{"a snapshot alone", snapshot("t"), "", nil},
		{"a snapshot in an object", `{"snapshot":` + snapshot("t") + `}`, "", nil},
		{"with a binding", `{"apply":"plugin","snapshot":` + snapshot("t") + `}`,
			apply.Plugin, nil},
		{"with what takes an approval", `{"snapshot":` + snapshot("t") +
			`,"approval":["PROJECT_ADVANCE","PROJECT_ADVANCE"]}`, "", advances},
		{"that nothing takes an approval", `{"snapshot":` + snapshot("t") +
			`,"approval":[],"apply":"local"}`, apply.Local,
			&approval.Policy{Types: []handoff.ProposalType{}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			towns, err := worldfile.Parse([]byte("["+row.element+"]"), anyBinding)
			require.NoError(t, err)
			require.Len(t, towns, 1)
			require.Equal(t, "t", towns[0].State.Snapshot.TownID)
			require.Equal(t, int64(15), towns[0].State.Epoch())
			require.NotEmpty(t, towns[0].State.Hash)
			require.Equal(t, row.binding, towns[0].Binding)
			require.Equal(t, row.approval, towns[0].Approval)
		})
	}
}

func TestParse_Order(t *testing.T) {
	t.Parallel()
	towns, err := worldfile.Parse(worlds.Frontier, anyBinding)
	require.NoError(t, err)
	var ids []string
	for i := range towns {
		ids = append(ids, towns[i].State.Snapshot.TownID)
	}
	at := -1
	for _, id := range ids {
		next := bytes.Index(worlds.Frontier, []byte(`"`+id+`"`))
		require.Greater(t, next, at, ids)
		at = next
	}
	require.Len(t, ids, 3)
	for _, empty := range []string{"[]", " [ ]\n"} {
		towns, err := worldfile.Parse([]byte(empty), anyBinding)
		require.NoError(t, err)
		require.Empty(t, towns)
	}
}

// Whatever is wrong is named with its path in the file, all of it, and then there are no towns.
func TestParse_Violations(t *testing.T) {
	t.Parallel()
	badDay := strings.Replace(snapshot("t"), `"day":15`, `"day":-1`, 1)
	twice := strings.Replace(snapshot("t"), `"sideQuests":[]`,
		`"sideQuests":[{"id":"q","title":"1"},{"id":"q","title":"2"}]`, 1)
	for _, row := range []struct {
		name, file string
		paths      []string
	}{
		{"no JSON", `[`, []string{""}},
		{"nothing", ``, []string{""}},
		{"two values", `[] []`, []string{""}},
		{"one town without a list", snapshot("t"), []string{""}},
		{"no town", `[null]`, []string{"/0"}},
		{"a list in the list", `[[` + snapshot("t") + `]]`, []string{"/0"}},
		{"a bad value", `[` + snapshot("a") + `,` + badDay + `]`, []string{"/1/day"}},
		{"a bad value in an object", `[{"snapshot":` + badDay + `}]`,
			[]string{"/0/snapshot/day"}},
		{"an id of two quests", `[` + twice + `]`, []string{"/0/sideQuests/1/id"}},
		{"an id of two quests in an object", `[{"snapshot":` + twice + `}]`,
			[]string{"/0/snapshot/sideQuests/1/id"}},
		{"a snapshot that is none", `[{"snapshot":null}]`, []string{"/0/snapshot"}},
		{"a member that is not known", `[{"snapshot":` + snapshot("t") + `,"applies":"local"}]`,
			[]string{"/0/applies"}},
		{"a binding that is not known", `[{"snapshot":` + snapshot("t") + `,"apply":"telnet"}]`,
			[]string{"/0/apply"}},
		{"a binding that the engine refuses",
			`[{"snapshot":` + snapshot("t") + `,"apply":"rcon"}]`, []string{"/0/apply"}},
		{"a type that is not known", `[{"snapshot":` + snapshot("t") + `,"approval":["FIRE"]}]`,
			[]string{"/0/approval/0"}},
		{"all that is wrong", `[` + badDay + `,{"snapshot":` + snapshot("u") +
			`,"apply":"rcon"},` + snapshot("v") + `,{"snapshot":` + badDay + `}]`,
			[]string{"/0/day", "/1/apply", "/3/snapshot/day"}},
		{"a town twice", `[` + snapshot("t") + `,` + snapshot("u") + `,` + snapshot("t") + `]`,
			[]string{"/2/townId"}},
		{"a town twice, once in an object",
			`[` + snapshot("t") + `,{"snapshot":` + snapshot("t") + `}]`,
			[]string{"/1/snapshot/townId"}},
		{"a town three times", `[` + snapshot("t") + `,` + snapshot("t") + `,` +
			snapshot("t") + `]`, []string{"/1/townId", "/2/townId"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			towns, err := worldfile.Parse([]byte(row.file), noConsole)
			require.Empty(t, towns)
			var invalid *schemas.ValidationError
			require.ErrorAs(t, err, &invalid)
			var paths []string
			for _, v := range invalid.Violations {
				require.NotEmpty(t, v.Message)
				paths = append(paths, v.Path)
			}
			require.Equal(t, row.paths, paths, err.Error())
			if strings.HasPrefix(row.name, "a town twice") {
				require.ErrorContains(t, err, "must be unique, but /0 is the same town")
			}
		})
	}
}

// An error of mayBind that says nothing about the file is not swallowed, and no town with it.
func TestParse_BindingError(t *testing.T) {
	t.Parallel()
	trouble := errors.New("trouble")
	towns, err := worldfile.Parse([]byte(`[{"snapshot":`+snapshot("t")+`,"apply":"rcon"}]`),
		func(apply.Binding) error { return trouble })
	require.ErrorIs(t, err, trouble)
	require.Empty(t, towns)
}

// A file that is too large is refused before it is read.
func TestParse_TooLarge(t *testing.T) {
	t.Parallel()
	_, err := worldfile.Parse(make([]byte, 64<<20+1), anyBinding)
	var invalid *schemas.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, schemas.CodePayloadTooLarge, invalid.Code)
}

// FuzzParse: no file makes Parse panic; it refuses one with paths, or returns towns with ids of their
// own, whose states make the same towns again.
func FuzzParse(f *testing.F) {
	wrapped := `{"snapshot":` + snapshot("t") + `,"apply":"plugin","approval":["SALVAGE_PLAN"]}`
	for _, seed := range []string{
		``, `[]`, `{}`, `[{}]`, `[null,5]`, `[` + snapshot("t") + `]`, `[` + wrapped + `]`,
		`[` + wrapped + `,` + snapshot("t") + `]`, `[{"snapshot":[]}]`,
		`[` + snapshot("\u202e~/") + `,` + wrapped + `]`, string(worlds.Frontier),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		towns, err := worldfile.Parse(file, noConsole)
		if err != nil {
			require.Nil(t, towns)
			var invalid *schemas.ValidationError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Violations)
			return
		}
		ids := map[string]bool{}
		again := []byte("[")
		for i := range towns {
			id := towns[i].State.Snapshot.TownID
			require.False(t, ids[id], "%q is there twice", id)
			ids[id] = true
			require.NotEqual(t, apply.RCON, towns[i].Binding)
			if i > 0 {
				again = append(again, ',')
			}
			again = append(again, towns[i].State.Canonical...)
		}
		same, err := worldfile.Parse(append(again, ']'), noConsole)
		require.NoError(t, err)
		require.Len(t, same, len(towns))
		for i := range same {
			require.Equal(t, towns[i].State.Hash, same[i].State.Hash)
		}
	})
}

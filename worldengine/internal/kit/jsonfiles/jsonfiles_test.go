package jsonfiles_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/jsonfiles"
)

func TestSplit_Values(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		values []string
		many   bool
		err    string
	}{
		`{"a": 1}`:              {values: []string{`{"a": 1}`}},
		`[{}, 2]`:               {values: []string{`{}`, `2`}, many: true},
		"{}\n{\"a\":1,\"a\":2}": {values: []string{`{}`, `{"a":1,"a":2}`}, many: true},
		`[]`:                    {values: []string{}, many: true},
		`[] []`:                 {values: []string{`[]`, `[]`}, many: true},
		``:                      {err: "it is empty"},
		`{} {`:                  {err: "at byte 4"},
		"\xef\xbb\xbf{}":        {err: jsonfiles.ErrByteOrderMark.Error()},
	} {
		values, many, err := jsonfiles.Split([]byte(text))
		if want.err != "" {
			require.ErrorContains(t, err, want.err, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, want.many, many, text)
		got := []string{}
		for _, value := range values {
			got = append(got, string(value))
		}
		require.Equal(t, want.values, got, text)
	}
}

func TestFiles_OfDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b.jsonl", "a.json", "note.txt", ".hidden.json", ".git/c.json", "sub/d.ndjson"} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	note := filepath.Join(dir, "note.txt")
	found, err := jsonfiles.Files([]string{note, dir, "-", dir})
	require.NoError(t, err)
	require.Equal(t, []string{note, filepath.Join(dir, "a.json"), filepath.Join(dir, "b.jsonl"),
		filepath.Join(dir, "sub/d.ndjson"), "-"}, found)
	_, err = jsonfiles.Files([]string{t.TempDir()})
	require.ErrorContains(t, err, "has no *.json, *.jsonl, *.ndjson")
	_, err = jsonfiles.Files([]string{filepath.Join(dir, "absent")})
	require.ErrorIs(t, err, os.ErrNotExist)
}

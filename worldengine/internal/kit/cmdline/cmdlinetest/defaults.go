// Package cmdlinetest tests configurations whose members are flags.
package cmdlinetest

import (
	"reflect"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RequireDefaults checks that a configuration has the same defaults as flags and in Go: if withDefaults leaves the
// tag of a member out, a program gets the default, and a test of the package does not. It returns how many members
// it compared. A bool whose default is true is the program's alone, since Go's zero value cannot mean it.
func RequireDefaults[C any](t *testing.T, withDefaults func(C) C) (compared int) {
	t.Helper()
	var flags, zero C
	parser, err := kong.New(&flags)
	require.NoError(t, err)
	_, err = parser.Parse(nil)
	require.NoError(t, err)
	return compare(t, reflect.ValueOf(flags), reflect.ValueOf(withDefaults(zero)))
}

func compare(t *testing.T, flags, coded reflect.Value) (compared int) {
	t.Helper()
	for i := range flags.NumField() {
		field := flags.Type().Field(i)
		switch text, has := field.Tag.Lookup("default"); {
		case field.Tag.Get("kong") == "-" || !field.IsExported() || field.Type.Kind() == reflect.Bool:
		case has && field.Tag.Get("type") == "path": // kong makes it absolute
			compared++
			assert.Equal(t, text, coded.Field(i).String(), field.Name)
		case has:
			compared++
			assert.Equal(t, flags.Field(i).Interface(), coded.Field(i).Interface(), field.Name)
		case field.Type.Kind() == reflect.Struct:
			compared += compare(t, flags.Field(i), coded.Field(i))
		}
	}
	return compared
}

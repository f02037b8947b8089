package replay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestByteDifference_Lines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 10)
	for _, row := range []struct{ name, expected, got, want string }{
		{"in the middle", `{"status":"executed","accepted":true,"reasonCode":"EXECUTED"}`,
			`{"status":"executed","accepted":false,"reasonCode":"EXECUTED"}`, `
the results differ from byte 32:
  expected …status":"executed","accepted":true,"reasonCode":"EXECUTED"}
  got      …status":"executed","accepted":false,"reasonCode":"EXECUTED"}
                                          ^`},
		{"in a long text", long, long[:50] + "x" + long[51:], `
the results differ from byte 50:
  expected …012345678901234567890123456789012345678901234567890123456789…
  got      …012345678901234567890123456789x12345678901234567890123456789…
                                          ^`},
		{"at the end", `{}`, `{} `, `
the results differ from byte 2:
  expected {}(the end)
  got      {}${SPACE}
             ^`},
		{"at the beginning", ``, `{`, `
the results differ from byte 0:
  expected (the end)
  got      {
           ^`},
		{"hidden characters", "a\u202eb\n", "a\u202eb\t", `
the results differ from byte 5:
  expected a\u202eb\n
  got      a\u202eb\t
                   ^`},
		{"within a character", "é", "è", `
the results differ from byte 1:
  expected \xc3\xa9
  got      \xc3\xa8
               ^`},
	} {
		got := "\n" + strings.Join(newFirstByte(row.expected, row.got).Lines(), "\n")
		assert.Equal(t, strings.ReplaceAll(row.want, "${SPACE}", " "), got, row.name)
	}
	assert.Nil(t, newFirstByte("{}", "{}"))
	assert.Empty(t, newFirstByte("{}", "{}").Lines())
}

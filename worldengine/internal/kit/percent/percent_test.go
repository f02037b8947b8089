package percent

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzEncode(f *testing.F) {
	for _, seed := range []string{"", "Town 1", "%", "%2", "%zz", "😀", "\xff\x00",
		strings.Repeat("=", 200)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		encoded := Encode(id)
		require.Regexp(t, `^(?:[A-Za-z0-9_-]|%[0-9A-F]{2})*$`, encoded)
		back, err := Decode(encoded)
		require.NoError(t, err)
		require.Equal(t, id, back)

		// Whatever Decode accepts of its own accord, it understands as others do.
		if decoded, err := Decode(id); err == nil {
			theirs, err := url.PathUnescape(id)
			require.NoError(t, err)
			require.Equal(t, theirs, decoded)
		}
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"%", "a%", "%4", "a%4", "%zz", "%4g", "% 1", "%%41"} {
		_, err := Decode(bad)
		require.ErrorContains(t, err, "percent-encoded", "%q", bad)
	}
	for in, want := range map[string]string{"": "", "a": "a", "%41": "A", "a%4Ab": "aJb",
		"%e2%82%ac": "€"} {
		got, err := Decode(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

package server

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// What clients choose does not make another kind.
func TestKindOfLine(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for i := range 100 {
		kinds[kindOf(
			fmt.Sprintf(
				`127.0.0.1:%d - cid:%d - "v1.%d:go:name" - "CLIENTS/user" - Publish Violation - User "u%d", Subject "s.%d"`, 1000+i, i, i, i, i))] = true
		kinds[kindOf(
			fmt.Sprintf(
				`127.0.0.1:%d - cid:%d - "v1.%d:go:name" - maximum payload exceeded: %d vs 1`, 1000+
					i, i, i, i))] = true
		kinds[kindOf(fmt.Sprintf(`127.0.0.1:%d - cid:%d - authentication error - User "u%d"`,
			1000+i, i, i))] = true
	}
	require.Len(t, kinds, 3, "%v", kinds)
}

// A line about a failed write is told from one in which a client says the same.
func TestAFailedWriteIsTold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Filestore [WORLD_main_LOG] Critical write error: no space left on device":                   true,
		"JetStream failed to store a msg on stream '$G > WORLD_main_LOG': no space left":             true,
		"JetStream out of file resources, will be DISABLED":                                          true,
		`127.0.0.1:4 - cid:4 - Client parser ERROR, proto='"Filestore [x] Critical write error"...'`: false,
		"Filestore [WORLD_main_LOG] Resource not found":                                              false,
	} {
		var said []string
		l := newNATSLogger(quietLogger(), nil)
		l.failed = func(why string) { said = append(said, why) }
		l.Errorf("%s", text)
		if !want {
			require.Empty(t, said)
			continue
		}
		require.Equal(t, []string{text}, said)
	}
}

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

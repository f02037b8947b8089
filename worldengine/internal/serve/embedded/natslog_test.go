package embedded

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/testkit/natstest"
)

// Text of clients does not make another kind.
func TestNATSLogger_Kinds(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for i := range 100 {
		for _, line := range []string{
			`"v1.%[1]d:go:name" - "CLIENTS/user" - Publish Violation - User "u%[1]d", Subject "s.%[1]d"`,
			`"v1.%[1]d:go:name" - maximum payload exceeded: %[1]d vs 1`,
			`authentication error - User "u%[1]d"`,
		} {
			kinds[kindOf(fmt.Sprintf("127.0.0.1:%[1]d - cid:%[1]d - "+line, i))] = true
		}
	}
	require.Len(t, kinds, 3, "%v", kinds)
}

// A line about a failed write is told from one in which a client says the same.
func TestNATSLogger_FailedWrite(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Filestore [WORLD_main_LOG] Critical write error: no space left on device":                   true,
		"JetStream failed to store a msg on stream '$G > WORLD_main_LOG': no space left":             true,
		"JetStream out of file resources, will be DISABLED":                                          true,
		`127.0.0.1:4 - cid:4 - Client parser ERROR, proto='"Filestore [x] Critical write error"...'`: false,
		"Filestore [WORLD_main_LOG] Resource not found":                                              false,
	} {
		said := ""
		l := newNATSLogger(slog.New(slog.DiscardHandler), nil, func(why string) { said = why })
		l.Errorf("%s", text)
		require.Equal(t, want, said == text, text)
	}
}

// A client that leaves while NATS registers it is no error.
func TestNATSLogger_ClientLeft(t *testing.T) {
	t.Parallel()
	for why, level := range map[string]string{
		"connection closed": "DEBUG", "maximum account active connections exceeded": "ERROR",
	} {
		log := &natstest.Buffer{}
		options := &slog.HandlerOptions{Level: slog.LevelDebug}
		newNATSLogger(slog.New(slog.NewTextHandler(log, options)), nil, nil).
			Errorf(`127.0.0.1:4 - cid:4 - Problem registering with account %q: %s`, "$G", why)
		require.Contains(t, log.String(), "level="+level)
	}
}

// A warning about an index that NATS rebuilds says so.
func TestNATSLogger_Rebuilt(t *testing.T) {
	t.Parallel()
	for warning, rebuilt := range map[string]bool{
		"Filestore [LOG] Recovering stream state from index errored: %v":                          true,
		"Filestore [LOG] TTL state is outdated; attempting to recover using linear scan (seq %d)": true,
		"Filestore [LOG] Error loading msg block with seq %d for recovering per-message state":    false,
	} {
		log := &natstest.Buffer{}
		newNATSLogger(slog.New(slog.NewTextHandler(log, nil)), nil, nil).Warnf(warning, 7)
		require.Equal(t, rebuilt, strings.Contains(log.String(), "NATS rebuilds it"), warning)
	}
}

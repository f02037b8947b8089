package server

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/natstest"
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

// A stream is well again only after a warning of NATS about its index, and not after an error.
func TestNATSLogger_Rebuilt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		warnings []string
		well     bool
	}{
		{nil, false},
		{[]string{"Filestore [LOG] Recovering stream state from index errored: %v"}, true},
		{[]string{"Filestore [LOG] TTL state is outdated; attempting to recover using linear scan"}, true},
		{[]string{"Filestore [RUN] Recovering stream state from index errored: %v"}, false},
		{[]string{"Filestore [LOG] TTL state is outdated; attempting to recover using linear scan",
			"Filestore [LOG] Error loading msg block with seq %d for recovering per-message state"}, false},
	} {
		log := &natstest.Buffer{}
		l := newNATSLogger(slog.New(slog.NewTextHandler(log, nil)), nil)
		for _, warning := range test.warnings {
			l.Warnf(warning, 7)
		}
		for range 2 {
			l.Noticef("  Restored %s messages for stream '%s > %s' in %v", "3", "$G", "LOG", time.Second)
		}
		want := 0
		if test.well {
			want = 1
		}
		require.Equal(t, want, strings.Count(log.String(), "all is well"), "%s", log)
	}
}

func quietLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

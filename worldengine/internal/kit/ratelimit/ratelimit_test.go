package ratelimit_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/ratelimit"
)

// TestLimit_May: so many of a kind are allowed in a period; the next one afterwards says how many
// were left out.
func TestLimit_May(t *testing.T) {
	t.Parallel()
	l, now := ratelimit.New(10, time.Minute), time.Unix(1_700_000_000, 0)
	for i := range 1000 {
		may, leftOut := l.May("a", now)
		require.Equal(t, i < 10, may)
		require.Zero(t, leftOut)
	}
	may, _ := l.May("b", now)
	require.True(t, may, "another kind")
	now = now.Add(time.Minute)
	may, leftOut := l.May("a", now)
	require.True(t, may)
	require.Equal(t, 990, leftOut)
}

// TestLimit_ManyKinds: kinds without end are one kind beyond a number of them, until their period is
// over.
func TestLimit_ManyKinds(t *testing.T) {
	t.Parallel()
	l, now := ratelimit.New(1, time.Minute), time.Unix(1_700_000_000, 0)
	allowed := 0
	for i := range 10_000 {
		if may, _ := l.May(fmt.Sprint(i), now); may {
			allowed++
		}
	}
	require.LessOrEqual(t, allowed, 257)
	may, _ := l.May("new", now.Add(time.Minute))
	require.True(t, may)
	may, _ = l.May("newer", now.Add(time.Minute))
	require.True(t, may, "kinds that are over make room")
}

// TestLogger_BoundsLinesOfAKind: a client that makes the server log has it log some lines, however
// often and however long, and lines of other kinds are logged beside them.
func TestLogger_BoundsLinesOfAKind(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	inner := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	logger := ratelimit.Logger(inner, nil).With("component", "c")
	user, err := strings.Repeat("ä", 1<<20), errors.New(strings.Repeat("x", 1<<20))
	for i := range 1000 {
		logger.Warn("refused", "user", user, "error", err, "i", i)
	}
	logger.WithGroup("g").Error("failed")
	logger.Debug("seen")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, ratelimit.LinesOfAKind+2)
	require.Less(t, out.Len(), ratelimit.LinesOfAKind*20_000)
	require.Contains(t, lines[ratelimit.LinesOfAKind], "msg=failed component=c")
	require.Contains(t, lines[0], "i=0")

	out.Reset()
	apart := ratelimit.Logger(logger, func(message string) string { return message[:1] })
	for i := range 20 {
		apart.Warn(fmt.Sprint("refused ", i))
	}
	require.Equal(t, ratelimit.LinesOfAKind, strings.Count(out.String(), "\n"),
		"the kinds of one bound are not those of another")
}

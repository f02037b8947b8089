package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Pauses double from Min to Max, each spread from a half to one and a half, until Reset.
func TestPolicy_PauseAfter(t *testing.T) {
	t.Parallel()
	for _, draw := range []time.Duration{0, 1} {
		b := Backoff{
			Min: 50 * time.Millisecond, Max: 350 * time.Millisecond,
			Jitter: func(below time.Duration) time.Duration { return draw * below },
		}
		for _, want := range []time.Duration{50, 100, 200, 350, 350} {
			require.Equal(t, want*time.Millisecond/2+draw*want*time.Millisecond, b.Next())
		}
		b.Reset()
		require.Equal(t, 25*time.Millisecond+draw*50*time.Millisecond, b.Next())
	}
}

// Without Jitter a pause is drawn at random within its bounds.
func TestBackoff_Draw(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: time.Second, Max: time.Second}
	for range 1000 {
		pause := b.Next()
		require.GreaterOrEqual(t, pause, time.Second/2)
		require.Less(t, pause, 3*time.Second/2)
	}
}

func TestSleep_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, Sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, (&Backoff{Min: time.Hour, Max: time.Hour}).Wait(ctx),
			context.DeadlineExceeded)
		require.Equal(t, time.Hour+time.Minute, time.Since(began))
	})
}

// If a pause and its context end at the same moment it is the context that has ended, whichever
// of the two the machine hears of first: a simulation takes the same steps again.
func TestSleep_Deadline(t *testing.T) {
	t.Parallel()
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			require.NoError(t, Sleep(ctx, 5*time.Millisecond))
			require.ErrorIs(t, Sleep(ctx, 5*time.Millisecond), context.DeadlineExceeded)
		})
	}
}

package queue

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// An answer that is ready counts, even if the time to wait for it is over.
func TestWaitTakesAnAnswerThatIsThere(t *testing.T) {
	t.Parallel()
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		answer, err := Wait(ctx, func(done func(string, error)) error {
			done("answer", nil)
			cancel()
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
	}
}

// Without an answer the work goes on unobserved.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var late func(string, error)
	_, err := Wait(ctx, func(done func(string, error)) error {
		late = done
		cancel()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	late("answer", nil)
}

package commitlog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A question that NATS has lost is asked again, long before the time of the caller is over; a refusal is an answer.
func TestRetryUnanswered(t *testing.T) {
	t.Parallel()
	refusal := errors.New("refused")
	for name, c := range map[string]struct {
		lost  int // questions
		err   error
		after time.Duration
	}{
		"answered at once":   {0, nil, 0},
		"refused at once":    {0, refusal, 0},
		"the first is lost":  {1, nil, firstAnswerTimeout},
		"all are lost":       {answerTries, context.DeadlineExceeded, 7*firstAnswerTimeout + 4*answerTimeout},
		"refused at the end": {3, refusal, 7 * firstAnswerTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began, asked := time.Now(), 0
				err := retryUnanswered(ctx, func(ctx context.Context) error {
					if asked++; asked <= c.lost {
						<-ctx.Done()
						return ctx.Err()
					}
					return c.err
				})
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.after, time.Since(began))
			})
		})
	}
}

// The caller's end is an end.
func TestRetryUnanswered_CallerEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), firstAnswerTimeout/2)
		defer cancel()
		asked := 0
		err := retryUnanswered(ctx, func(ctx context.Context) error {
			asked++
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, asked)
	})
}

package queue

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// An answer that is ready counts, even if the time to wait for it is over. Without one the work goes
// on unobserved.
func TestReply(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		r := NewReply[string]()
		r.Answer("answer", nil)
		answer, err := r.Wait(over)
		require.NoError(t, err)
		require.Equal(t, "answer", answer)
	}
	late := NewReply[string]()
	_, err := late.Wait(over)
	require.ErrorIs(t, err, context.Canceled)
	late.Answer("answer", nil) // does not block
}

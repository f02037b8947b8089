package worldengine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/runs"
)

// A run without a readable record of its end answers its client with that instead of waiting for
// ever. A log that does not answer is asked again.
func TestTheRecordOfAnEndThatIsLost(t *testing.T) {
	t.Parallel()
	end := func(err error) error {
		e := Engine{endOfRun: func(context.Context, string) (uint64, error) { return 0, err }}
		rec, err := e.recordOfEnd(t.Context(), "run")
		require.Nil(t, rec)
		return err
	}
	require.NoError(t, end(nil))
	require.NoError(t, end(fmt.Errorf("%w: run", runs.ErrUnknownRun)))
	require.NoError(t, end(fmt.Errorf("%w: run", runs.ErrRunDamaged)))
	require.ErrorIs(t, end(commitlog.ErrLogUnavailable), commitlog.ErrLogUnavailable)
	gone := errors.New("the bus does not answer")
	require.ErrorIs(t, end(gone), gone)
}

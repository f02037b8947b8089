package storage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Watch tells each change once, however often it looks.
func TestWatchTellsEachChangeOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	full, failed := errors.New("full"), errors.New("failed")
	looks := []error{nil, full, failed, nil, nil, full}
	look := func() error {
		now := looks[0]
		if looks = looks[1:]; len(looks) == 0 {
			cancel()
			looks = []error{now}
		}
		return now
	}
	var told []error
	Watch(ctx, time.Millisecond, false, look, func(err error) { told = append(told, err) })
	require.Equal(t, []error{full, nil, full}, told)
}

// The end of what had begun before Watch is a change, and that it goes on is none.
func TestWatchTellsTheEndOfWhatHadBegunBefore(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	for _, first := range []error{nil, full} {
		ctx, cancel := context.WithCancel(t.Context())
		looks := []error{first, nil}
		look := func() error {
			now := looks[0]
			if looks = looks[1:]; len(looks) == 0 {
				cancel()
				looks = []error{now}
			}
			return now
		}
		var told []error
		Watch(ctx, time.Millisecond, true, look, func(err error) { told = append(told, err) })
		require.Equal(t, []error{nil}, told)
	}
}

package storage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watched returns Watch's reports if it finds these errors one after the other, and then the last
// one.
func watched(t *testing.T, refused bool, looks ...error) (told []error) {
	ctx, cancel := context.WithCancel(t.Context())
	look := func() error {
		now := looks[0]
		if looks = looks[1:]; len(looks) == 0 {
			cancel()
			looks = []error{now}
		}
		return now
	}
	Watch(ctx, time.Millisecond, refused, look, func(err error) { told = append(told, err) })
	return told
}

// Watch tells each change once, however often it looks.
func TestWatchTellsEachChangeOnce(t *testing.T) {
	t.Parallel()
	full, failed := errors.New("full"), errors.New("failed")
	require.Equal(t, []error{full, nil, full}, watched(t, false, nil, full, failed, nil, nil, full))
}

// The end of an earlier refusal is a change; its continuation is none.
func TestWatchTellsTheEndOfWhatHadBegunBefore(t *testing.T) {
	t.Parallel()
	for _, first := range []error{nil, errors.New("full")} {
		require.Equal(t, []error{nil}, watched(t, true, first, nil))
	}
}

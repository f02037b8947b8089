package storage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Watch reports each change once, however often it looks: also the end of an earlier refusal, and
// not its continuation.
func TestWatch(t *testing.T) {
	t.Parallel()
	full, failed := errors.New("full"), errors.New("failed")
	for name, c := range map[string]struct {
		refused     bool
		looks, want []error
	}{
		"changes":      {false, []error{nil, full, failed, nil, nil, full}, []error{full, nil, full}},
		"it has ended": {true, []error{nil, nil}, []error{nil}},
		"it ends":      {true, []error{full, nil}, []error{nil}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		look := func() error {
			now := c.looks[0]
			if len(c.looks) == 1 {
				cancel()
				return now
			}
			c.looks = c.looks[1:]
			return now
		}
		var changes []error
		Watch(ctx, time.Millisecond, c.refused, look, func(err error) { changes = append(changes, err) })
		cancel()
		require.Equal(t, c.want, changes, name)
	}
}

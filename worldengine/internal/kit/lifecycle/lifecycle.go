// Package lifecycle starts the parts of something in order, and stops them in the reverse order.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// abandonTimeout bounds the end of the parts before one that cannot start.
const abandonTimeout = time.Second

// Part is a part that may run: from Start, which returns once the part runs, to Stop, which returns once it runs
// no more. Start may be nil for a part that runs already, and Stop for one that needs no end or ends with another.
// A part may use those before it in its List from its Start to the end of its Stop. A part with Skip neither starts
// nor stops.
type Part struct {
	Name  string
	Skip  bool
	Start func(ctx context.Context) error
	Stop  func(ctx context.Context) error
}

// List has the parts that run, in the order of their start. The zero List has none.
type List struct{ running []Part }

// Start starts parts one after the other, behind those that run. If a part cannot start, Start stops all parts
// of the list, and returns the errors.
func (l *List) Start(ctx context.Context, parts ...Part) error {
	for _, part := range parts {
		if part.Skip {
			continue
		}
		if part.Start != nil {
			if err := part.Start(ctx); err != nil {
				return errors.Join(err, l.abandon(ctx))
			}
		}
		l.running = append(l.running, part)
	}
	return nil
}

// abandon stops the parts of a start that failed, even if ctx is done.
func (l *List) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	return l.Stop(ctx)
}

// Stop stops the parts that run, the last one first, all of them even after an error, and returns the errors.
// ctx is for all parts together. A second Stop does nothing.
func (l *List) Stop(ctx context.Context) (err error) {
	for len(l.running) > 0 {
		last := len(l.running) - 1
		part := l.running[last]
		l.running = l.running[:last]
		if part.Stop == nil {
			continue
		}
		if failed := part.Stop(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("stop %s: %w", part.Name, failed))
		}
	}
	return err
}

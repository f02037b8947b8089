package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RecreateAfter is how long an engine waits before it makes a stream of receipts that is gone, once
// there may be receipts. The stream of a served world may be deleted at any moment, and the new one
// is empty at first. An engine that saw the old one less than RecreateAfter before the answer of a
// lookup cannot have asked the new one.
const RecreateAfter = time.Second

// ErrReplaced says that the stream is not the one that was followed, or may not be: what it does
// not have may have been accepted. The stream has to be followed again, then ask again.
var ErrReplaced = errors.New("dedupe: the stream of receipts was made again, " +
	"or does not answer in time")

// confirm makes sure that the stream was the one that was followed, at a moment less than
// RecreateAfter ago.
func (r *Receipts) confirm(ctx context.Context) error {
	switch age := r.age(); {
	case age < RecreateAfter/2:
		return nil
	case age < RecreateAfter: // one asks, the others go by what is known
		if !r.asking.TryLock() {
			return nil
		}
		defer r.asking.Unlock()
	}
	asked := time.Now()
	info, err := r.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("dedupe: the stream of receipts: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	same := info.Created.Equal(r.created)
	if !same {
		r.replaced()
		r.losses++
		r.created = info.Created
	}
	if asked.After(r.seen) {
		r.seen = asked
	}
	if !same {
		return ErrReplaced
	}
	return nil
}

// age returns how long ago the stream was seen to be the one that is followed.
func (r *Receipts) age() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.seen)
}

// Losses counts how often the stream was found replaced. What was not found is only free if the
// count is what it was before the receipts were waited for.
func (r *Receipts) Losses() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.losses
}

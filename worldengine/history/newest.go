package history

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// NewestWindow is how many messages of the log, the last ones, Newest looks at.
const NewestWindow = 500

// Window bounds what Newest visits: the revisions before one and after another; 0 for no bound.
type Window struct{ Before, After uint64 }

// Newest visits the changes of all towns in a window that stand among the last NewestWindow
// messages of the log, the newest first, until visit returns false. It leaves damaged ones out. It
// returns commitlog.ErrLogUnavailable.
func (r *Reader) Newest(
	ctx context.Context, w Window, visit func(townID string, change messages.Revision) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	end, err := r.Log.End(ctx)
	if err != nil {
		return err
	}
	first := max(w.After, end-min(end, NewestWindow))
	if w.Before > 0 {
		end = min(end, w.Before-1)
	}
	for seq := end; seq > first; seq-- {
		msg, err := r.Log.Store.At(ctx, seq)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case err != nil && !isDamage(err):
			return fmt.Errorf("%w: message %d: %w", commitlog.ErrLogUnavailable, seq, err)
		case err != nil || msg == nil || !ofTown(r.Log.World, msg.Subject):
			continue
		}
		rec, err := commitlog.ReadRecord(msg.Data)
		if err != nil {
			continue
		}
		if !visit(rec.TownID, r.changeOf(ctx, msg)) {
			return nil
		}
	}
	return nil
}

// isDamage reports whether NATS answered that it cannot deliver a message.
func isDamage(err error) bool {
	var answer *jetstream.APIError
	return errors.As(err, &answer) && answer.Code != http.StatusServiceUnavailable
}

// changeOf is revisionOf of a message, and reads its prior only if the revision lacks members.
func (r *Reader) changeOf(ctx context.Context, msg *jetstream.RawStreamMsg) messages.Revision {
	change := revisionOf(msg, nil)
	if change.ActorID != "" || commitlog.Kind(change.Cause) == commitlog.KindPut {
		return change
	}
	if prior, err := r.Log.Previous(ctx, msg); err == nil {
		change = revisionOf(msg, prior)
	}
	return change
}

// ofTown reports whether a subject of the log is the one of a town.
func ofTown(world, subject string) bool {
	return subject != wire.ControlSubject(world) && commitlog.IsHistory(world, subject) &&
		strings.HasPrefix(subject, wire.LogSubject(world, ""))
}

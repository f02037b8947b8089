package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/samples"
	"worldengine/worldengine/wire"
)

// openIndex opens the index of the log, unless Config has one. It raises an alert if the log has lost records since
// the index was written.
func (s *storage) openIndex(ctx context.Context) (err error) {
	c := &s.config
	if s.index = c.Storage.Index; s.index == nil {
		s.index, err = samples.Open(ctx, index.Config{
			World: c.World, Source: index.LogSource(s.log.Log), Dir: c.Storage.IndexDir, Logger: c.Logger,
			OnLost: func(rows []index.RowView) { s.alerts.Raise(lostAlert(rows)) },
		})
	}
	return err
}

// lostAlert returns the alert about records that the log lost since the index was written.
func lostAlert(rows []index.RowView) runevents.Alert {
	lost := fmt.Errorf("the log has lost records that it had: %s; keep the old file of the "+
		"index, rows.lost-%d, and put the newer log back if there is one",
		index.DescribeRows(rows), rows[len(rows)-1].Seq)
	return alerts.LogLost.Alert(alerts.About{}, "{effect}", "The index was rebuilt, and "+
		"handoffs are judged by the log as it is", "{error}", phrase.Sentence(lost))
}

// completeIndex lets an index follow a log to its end. If it then has fewer rows than the log has messages, the node
// that it was read from was damaged, and it is built anew.
func completeIndex(ctx context.Context, log *records.Log, x *index.Index) error {
	info, err := commitlog.LeaderInfo(ctx, log.Stream) // before the index follows, since both grow
	if err != nil {
		return err
	}
	if _, err := x.CatchUp(ctx); err != nil || uint64(x.Rows()) >= info.State.Msgs {
		return err
	}
	if err := x.Rebuild(ctx); !errors.Is(err, index.ErrKnowsMore) {
		return err
	}
	return nil
}

// connectIndex makes a log ask its index for lost messages, the newest record of a town, and the last
// persistedAt of towns and runs.
func connectIndex(log *records.Log, x *index.Index) {
	log.NewestIndexed = func(townToken string) uint64 { return x.Chain(townToken).Newest }
	log.Continuity.Missing = func(ctx context.Context, upTo uint64) (string, error) {
		lost, err := x.FindLost(ctx, upTo)
		return index.DescribeRows(lost), err
	}
	log.LastPersistedAt = func(ctx context.Context, subject string, header nats.Header) time.Time {
		token := header.Get(layout.TownTokenHeader)
		if token == "" {
			token = subject[strings.LastIndexByte(subject, '.')+1:]
		}
		last := x.LastAt(token, layout.RunIDOf(header))
		guard, _ := commitlog.GuardOf(header)
		if guard <= x.Position() {
			return last
		}
		// The index has not reached the guard yet.
		if msg, err := log.Store.At(ctx, guard); err == nil && msg != nil {
			if at := commitlog.PersistedAt(msg.Header, msg.Time); at.After(last) {
				return at
			}
		}
		return last
	}
}

// requiredHistory returns a function that returns the required history of a town whose last message is at a sequence.
// If the index does not reach it in time, the error is ErrIndexBehind.
func requiredHistory(x *index.Index) func(context.Context, string, uint64) (records.RequiredHistory, error) {
	return func(ctx context.Context, townID string, seq uint64) (records.RequiredHistory, error) {
		token := wire.TownToken(townID)
		needs, newest := x.RequiredHistory(token)
		if newest >= seq {
			return needs, nil
		}
		if err := x.Wait(ctx, seq); err != nil {
			return records.RequiredHistory{}, err
		}
		needs, _ = x.RequiredHistory(token)
		return needs, nil
	}
}

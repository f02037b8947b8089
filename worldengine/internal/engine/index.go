package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/samples"
)

// openIndex opens the index of the log, unless Config has one. Rows that the log has lost are kept
// for raiseLost.
func (e *Engine) openIndex(ctx context.Context) (err error) {
	if e.samples = e.config.Storage.Index; e.samples == nil {
		e.samples, err = samples.Open(ctx, index.Config{
			World: e.config.World, Source: index.LogSource(e.log.Log), Dir: e.config.Storage.IndexDir,
			Logger: e.config.Logger, OnLost: func(rows []index.RowView) { e.lostRows = rows },
		})
	}
	if err != nil {
		return err
	}
	e.index = e.samples.Index
	e.useIndex()
	e.runs.AnswerTime = e.samples.AnswerTime
	return nil
}

// useIndex makes the readers of the log and its index, and connects the log with its index and its feed.
// That is before the first commit, so that both get every one of them.
func (e *Engine) useIndex() {
	e.makeReaders()
	connectIndex(e.log, e.index)
	e.log.OnAppended = func(seq uint64, msg *nats.Msg) {
		e.index.Put(seq, msg.Subject, msg.Header) // first: readers of the feed find the commit in the index
		e.feed.Appended(seq, msg)
	}
}

// completeIndex builds the index of a standby anew if it has fewer rows than the log has messages: the
// node that it was read from was damaged.
func (e *Engine) completeIndex(ctx context.Context) error {
	info, err := commitlog.LeaderInfo(ctx, e.log.Stream) // before the index follows, since both grow
	if err != nil {
		return err
	}
	if _, err := e.index.CatchUp(ctx); err != nil || uint64(e.index.Rows()) >= info.State.Msgs {
		return err
	}
	if err := e.index.Rebuild(ctx); !errors.Is(err, index.ErrKnowsMore) {
		return err
	}
	return nil
}

// raiseLost alerts operators to the records that the log lost since the index was written, if any.
func (e *Engine) raiseLost() {
	if len(e.lostRows) == 0 {
		return
	}
	lost := fmt.Errorf("the log has lost records that it had: %s; keep the old file of the "+
		"index, rows.lost-%d, and put the newer log back if there is one",
		index.DescribeRows(e.lostRows), e.lostRows[len(e.lostRows)-1].Seq)
	e.alerts.Raise(alerts.LogLost.Alert(alerts.About{}, "{effect}", "The index was rebuilt, and "+
		"handoffs are judged by the log as it is", "{error}", phrase.Sentence(lost)))
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

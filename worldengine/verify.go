package worldengine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"worldengine/worldengine/alerts"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/wire"
)

// Lack is a town of which the log's leader keeps fewer records than the log must keep.
type Lack struct {
	Town         string // token
	Kept, Needed uint64
}

// Verify compares the index with the copy of the log that the stream's leader has, town by town. The
// index may know more than that copy, if it followed an earlier leader, and then names what the copy
// lacks. If the copy has more messages than the index, Verify builds the index anew.
func (e *Engine) Verify(ctx context.Context) ([]Lack, error) {
	info, err := commitlog.LeaderInfo(ctx, e.log.Stream) // before the index follows, since both grow
	if err != nil {
		return nil, err
	}
	if _, err := e.index.Sync(ctx); err != nil {
		return nil, err
	}
	if rows := uint64(e.index.Rows()); rows < info.State.Msgs {
		e.config.Logger.Warn("the index is built anew: the log counts more messages", "rows", rows,
			"messages", info.State.Msgs)
		if err := e.index.Rebuild(ctx); err != nil {
			return nil, fmt.Errorf("the index cannot be built anew: %w", err)
		}
		e.raiseUnread(info.State.Msgs, uint64(e.index.Rows()), info.State.LastSeq)
	}
	chains := e.index.Chains()
	counts, err := commitlog.SubjectsOf(ctx, e.log.Stream, wire.LogSubject(e.config.World, "*"))
	if err != nil {
		return nil, err
	}
	limits := e.index.Limits()
	var lacks []Lack
	for i := range chains {
		c := &chains[i]
		kept := counts[wire.LogSubject(e.config.World, c.Town)]
		if needed := min(uint64(c.Linked), limits.Least); kept < needed && c.Hole > limits.RestoredTo {
			lacks = append(lacks, Lack{c.Town, kept, needed})
		}
	}
	return lacks, nil
}

// raiseUnread alerts operators to messages that the log counts and does not deliver.
func (e *Engine) raiseUnread(messages, rows, end uint64) {
	if rows >= messages {
		return
	}
	alert := alerts.CommitDamaged.About(alerts.About{}, "{sequence}",
		"or before "+strconv.FormatUint(end, 10), "{error}", fmt.Sprintf("the log counts %d messages and "+
			"delivers %d.", messages, rows))
	alert.LogSeq = end
	e.alerts.RaiseOnce(alert)
}

// verifyLog verifies the log at the start, and each time the stream has another leader: hearLog tells
// it. It ends when ctx does.
func (e *Engine) verifyLog(ctx context.Context) {
	for {
		select {
		case <-e.elected:
		case <-ctx.Done():
			return
		}
		for pause := hearEvery; ; pause = min(2*pause, maxVerifyPause) {
			lacks, err := e.Verify(ctx)
			if err == nil {
				e.raiseLacks(lacks)
				break
			}
			e.config.Logger.Warn("the log cannot be verified; will try again", "error", err)
			if backoff.Sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

const maxVerifyPause = 30 * hearEvery

// raiseLacks alerts operators to the damage that Verify found, and to the chains with a hole.
func (e *Engine) raiseLacks(lacks []Lack) {
	e.lacks.Store(&lacks)
	for _, lack := range lacks[:min(len(lacks), mostProblems)] {
		c := e.index.Chain(lack.Town)
		e.raiseDamaged(&c, fmt.Sprintf("it keeps %d of its records, and must keep %d", lack.Kept,
			lack.Needed))
	}
	broken := e.index.Broken()
	for i := range broken[:min(len(broken), mostProblems)] {
		_ = e.damaged(&broken[i])
	}
	if towns := len(lacks) + len(broken); towns > 0 {
		e.config.Logger.Error("TOWN_DAMAGED: the log lacks records", "towns", towns)
	}
}

// lacks reports whether Verify found that the log lacks records of a town.
func (e *Engine) lacksRecords(token string) bool {
	lacks := e.lacks.Load()
	return lacks != nil && slices.ContainsFunc(*lacks, func(l Lack) bool { return l.Town == token })
}

// raiseDamaged alerts operators once to a town of which records are missing.
func (e *Engine) raiseDamaged(c *index.Chain, why string) {
	if e.alerts == nil {
		return
	}
	townID, err := wire.PercentDecode(c.Town)
	if err != nil {
		townID = c.Town
	}
	alert := alerts.TownDamaged.About(alerts.About{TownID: townID}, "{why}", why)
	alert.TownID, alert.LogSeq = townID, cmp.Or(c.Hole, c.Newest)
	e.alerts.RaiseOnce(alert)
}

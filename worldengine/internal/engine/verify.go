package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// MissingRecords is a town of which the log's leader keeps fewer records than the log must keep.
type MissingRecords struct {
	Town           string // token
	Stored, Needed uint64
}

// Verify compares the index with the copy of the log that the stream's leader has, town by town. The
// index may know more than that copy, if it followed an earlier leader, and then shows which towns
// the copy falls short of. If the copy has more messages than the index, Verify builds the index anew.
func (e *Engine) Verify(ctx context.Context) (short []MissingRecords, err error) {
	info, err := commitlog.LeaderInfo(ctx, e.log.Stream) // before the index follows, since both grow
	if err != nil {
		return nil, err
	}
	if _, err := e.index.Sync(ctx); err != nil {
		return nil, err
	}
	if err := e.rebuildIfBehind(ctx, info.State.Msgs, info.State.LastSeq); err != nil {
		return nil, err
	}
	chains := e.index.Chains()
	counts, err := commitlog.SubjectsOf(ctx, e.log.Stream, layout.LogSubject(e.config.World, "*"))
	if err != nil {
		return nil, err
	}
	limits := e.index.Limits()
	for i := range chains {
		c := &chains[i]
		s := MissingRecords{c.Town, counts[layout.LogSubject(e.config.World, c.Town)], c.Needed(limits)}
		if s.Stored < s.Needed {
			short = append(short, s)
		}
	}
	return short, nil
}

// rebuildIfBehind builds the index anew if the log counts more messages than the index has rows, unless that
// did not help before: NATS counts messages that it does not deliver.
func (e *Engine) rebuildIfBehind(ctx context.Context, messages, end uint64) error {
	if uint64(e.index.Rows())+e.undelivered >= messages {
		return nil
	}
	e.config.Logger.Warn("the index is built anew: the log counts more messages", "rows",
		e.index.Rows(), "messages", messages)
	err := e.index.Rebuild(ctx)
	if err != nil && !errors.Is(err, index.ErrKnowsMore) {
		return err
	}
	rows := uint64(e.index.Rows())
	if rows >= messages {
		return nil
	}
	e.undelivered = messages - rows
	alert := alerts.CommitsUndelivered.Alert(alerts.Subject{}, "{counted}", fmt.Sprint(messages),
		"{delivered}", fmt.Sprint(rows))
	alert.LogSeq = end
	e.alerts.RaiseOnce(alert)
	return nil
}

// verifyLog verifies the log at the start, and each time the stream has another leader or NATS was
// away. While a node is damaged it also looks whether it still is. It ends when ctx does.
func (e *Engine) verifyLog(ctx context.Context) {
	for {
		select {
		case <-e.leaderChanged:
			e.undelivered = 0 // another leader may deliver all
		case <-time.After(damageRecheckInterval):
			if e.ReplicaDamaged() == "" {
				continue
			}
		case <-ctx.Done():
			return
		}
		for pause := pollInterval; ; pause = min(2*pause, maxVerifyPause) {
			short, err := e.verifyReplicas(ctx)
			if err == nil || errors.Is(err, commitlog.ErrUncounted) {
				e.reportAll(short)
			}
			if err == nil {
				break
			}
			e.config.Logger.Warn("the log cannot be verified; will try again", "error", err)
			if backoff.Sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// damageRecheckInterval is the pause between two comparisons while a node is damaged.
const damageRecheckInterval = time.Minute

// verifyReplicas is Verify for a log with replicas. If the leader lacks messages and another node has
// them, that node comes to lead the log first. With commitlog.ErrUncounted it has compared the index with the
// leader, but not all nodes.
func (e *Engine) verifyReplicas(ctx context.Context) (short []MissingRecords, err error) {
	var moved bool
	if e.ReplicaDamaged() != "" {
		moved, err = e.replicas.compare(ctx)
	} else {
		moved, err = e.replicas.check(ctx, false)
	}
	uncounted := err
	if err != nil && !errors.Is(err, commitlog.ErrUncounted) {
		return nil, err
	}
	e.noteLeaderChange(moved)
	short, err = e.Verify(ctx)
	if err == nil && len(short)+len(e.index.Broken()) > 0 && e.moveFromDamagedLeader(ctx) {
		e.undelivered = 0
		short, err = e.Verify(ctx)
	}
	return short, cmp.Or(err, uncounted)
}

// moveFromDamagedLeader reports whether another node than before leads the log, since the old leader lacked
// messages that the new one has.
func (e *Engine) moveFromDamagedLeader(ctx context.Context) bool {
	moved, err := e.replicas.compare(ctx)
	if err != nil {
		e.config.Logger.Warn("the replicas of the log cannot be compared", "error", err)
	}
	e.noteLeaderChange(moved)
	return moved
}

// noteLeaderChange raises alerts about damaged nodes, and forgets the towns that were read from one that led
// the log.
func (e *Engine) noteLeaderChange(moved bool) {
	e.raiseReplicas()
	if moved {
		e.appends.Forget()
		e.towns.Clear()
		e.config.Logger.Warn(leaderMovedText, "damaged", e.ReplicaDamaged())
	}
}

const maxVerifyPause = 30 * pollInterval

// reportAll reports the damage that Verify found, and the chains with a hole.
func (e *Engine) reportAll(short []MissingRecords) {
	for i := range short {
		e.reportDamage(short[i].Town, 0, fmt.Sprintf("it keeps %d of the town's records, and must keep %d",
			short[i].Stored, short[i].Needed))
	}
	for _, c := range e.index.Broken() {
		_ = e.reportHole(&c)
	}
}

// reportHole reports a town whose chain has a hole, and returns the error for its clients.
func (e *Engine) reportHole(c *index.Chain) error {
	why := fmt.Sprintf("log sequence %d names %d as the record before it, and that is missing", c.Hole,
		c.Missing)
	e.reportDamage(c.Town, 0, why)
	return fmt.Errorf("%w: town %s: %s", records.ErrTownDamaged, c.Town, why)
}

// damage is a town that answers TOWN_DAMAGED.
type damage struct {
	record uint64 // the record that the log must keep and does not deliver; 0 if it is unknown
}

// reportDamage alerts operators once, and has the town in Damaged until the town turns out to be whole.
func (e *Engine) reportDamage(token string, record uint64, why string) {
	if e.alerts == nil {
		return
	}
	e.reportedDamage.Store(token, damage{record})
	townID, err := percent.Decode(token)
	if err != nil {
		townID = token
	}
	origin := "The log"
	if node := e.log.Leader(); node != "" {
		origin += ", as the node " + node + " has it,"
	}
	alert := alerts.TownDamaged.Alert(alerts.Subject{TownID: townID}, "{log}", origin, "{why}", why)
	c := e.index.Chain(token)
	alert.TownID, alert.LogSeq = townID, cmp.Or(record, c.Hole, c.Newest, 1)
	e.alerts.RaiseOnce(alert)
}

// isDamaged reports whether a town answers TOWN_DAMAGED, at least for some keys.
func (e *Engine) isDamaged(ctx context.Context, token string) (bool, error) {
	_, err := e.log.LoadToken(ctx, token)
	if errors.Is(err, records.ErrTownDamaged) {
		return true, nil
	}
	c := e.index.Chain(token)
	if err != nil || !c.Whole(e.index.Limits()) {
		return err == nil, err
	}
	found, reported := e.reportedDamage.Load(token)
	if !reported {
		return false, nil
	}
	still := false
	if record := found.(damage).record; record > 0 && e.index.MustKeep(record) {
		msg, err := e.log.At(ctx, record)
		if err != nil {
			return false, err
		}
		still = msg == nil
	} else if record == 0 {
		subject := layout.LogSubject(e.config.World, token)
		counts, err := commitlog.SubjectsOf(ctx, e.log.Stream, subject)
		if err != nil {
			return false, err
		}
		still = counts[subject] < c.Needed(e.index.Limits())
	}
	if !still {
		e.reportedDamage.Delete(token)
	}
	return still, nil
}

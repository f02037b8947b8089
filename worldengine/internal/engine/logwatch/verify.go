package logwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
)

// shortTown is a town of which the log's leader keeps fewer records than the log must keep.
type shortTown struct {
	token          string
	stored, needed uint64
}

// findShortTowns compares the index with the copy of the log that the stream's leader has, town by town. The
// index may know more than that copy, if it followed an earlier leader, and then shows which towns the copy
// falls short of. If the copy has more messages than the index, findShortTowns builds the index anew.
func (w *Watcher) findShortTowns(ctx context.Context) (short []shortTown, err error) {
	info, err := commitlog.LeaderInfo(ctx, w.Log.Stream) // before the index follows, since both grow
	if err != nil {
		return nil, err
	}
	if err := w.sync(ctx); err != nil {
		return nil, err
	}
	if err := w.rebuildIfBehind(ctx, info.State.Msgs, info.State.LastSeq); err != nil {
		return nil, err
	}
	chains := w.Index.Chains()
	counts, err := commitlog.SubjectsOf(ctx, w.Log.Stream, w.townSubject("*"))
	if err != nil {
		return nil, err
	}
	limits := w.Index.Limits()
	for i := range chains {
		c := &chains[i]
		town := shortTown{c.Town, counts[w.townSubject(c.Town)], c.Needed(limits)}
		if town.stored < town.needed {
			short = append(short, town)
		}
	}
	return short, nil
}

// sync has the index follow the log to its present end.
func (w *Watcher) sync(ctx context.Context) error {
	_, err := w.Index.CatchUp(ctx)
	return err
}

// rebuildIfBehind builds the index anew if the log counts more messages than the index has rows, unless that
// did not help before: NATS counts messages that it does not deliver.
func (w *Watcher) rebuildIfBehind(ctx context.Context, messages, end uint64) error {
	if uint64(w.Index.Rows())+w.undelivered >= messages {
		return nil
	}
	w.Logger.Warn("the index is built anew: the log counts more messages", "rows",
		w.Index.Rows(), "messages", messages)
	err := w.Index.Rebuild(ctx)
	if err != nil && !errors.Is(err, index.ErrKnowsMore) {
		return err
	}
	rows := uint64(w.Index.Rows())
	if rows >= messages {
		return nil
	}
	w.undelivered = messages - rows
	alert := alerts.CommitsUndelivered.Alert(alerts.About{}, "{counted}", fmt.Sprint(messages),
		"{delivered}", fmt.Sprint(rows))
	alert.LogSeq = end
	w.Alerts.RaiseOnce(alert)
	return nil
}

// verifyOnDoubt verifies the log at the start, and each time the stream has another leader or NATS was
// away. While a node is damaged it also looks whether it still is. It ends when ctx does.
func (w *Watcher) verifyOnDoubt(ctx context.Context) {
	for {
		select {
		case <-w.unverified:
			w.undelivered = 0 // another leader may deliver all
		case <-time.After(damageRecheckInterval):
			if w.Replicas.Damaged() == "" {
				continue
			}
		case <-ctx.Done():
			return
		}
		for pause := urgentInterval; ; pause = min(2*pause, maxVerifyInterval) {
			short, err := w.verifyAll(ctx)
			if err == nil || errors.Is(err, commitlog.ErrUncounted) {
				w.reportAll(short)
			}
			if err == nil {
				break
			}
			w.warn(ctx, "the log cannot be verified; will try again", err)
			if backoff.Sleep(ctx, pause) != nil {
				return
			}
		}
	}
}

// damageRecheckInterval is the pause between two comparisons while a node is damaged.
const damageRecheckInterval = time.Minute

// verifyAll compares the replicas of the log with each other, and then the index with the leader. If the leader
// lacks messages and another node has them, that node comes to lead the log first. With commitlog.ErrUncounted it
// has compared the index with the leader, but not all nodes.
func (w *Watcher) verifyAll(ctx context.Context) (short []shortTown, err error) {
	var moved bool
	if w.Replicas.Damaged() != "" {
		moved, err = w.Replicas.compareMessages(ctx, w.Log.Stream)
	} else {
		moved, err = w.Replicas.compareCounts(ctx, w.Log.Stream, false)
	}
	uncounted := err
	if err != nil && !errors.Is(err, commitlog.ErrUncounted) {
		return nil, err
	}
	w.reportReplicas(moved)
	short, err = w.findShortTowns(ctx)
	if err == nil && len(short)+len(w.Index.BrokenChains()) > 0 && w.moveFromDamagedLeader(ctx) {
		w.undelivered = 0
		short, err = w.findShortTowns(ctx)
	}
	return short, cmp.Or(err, uncounted)
}

// moveFromDamagedLeader reports whether another node than before leads the log, since the old leader lacked
// messages that the new one has.
func (w *Watcher) moveFromDamagedLeader(ctx context.Context) bool {
	moved, err := w.Replicas.compareMessages(ctx, w.Log.Stream)
	if err != nil {
		w.warn(ctx, "the replicas of the log cannot be compared", err)
	}
	w.reportReplicas(moved)
	return moved
}

// reportReplicas raises alerts about damaged nodes, and forgets the towns that were read from one that led
// the log.
func (w *Watcher) reportReplicas(moved bool) {
	w.Replicas.raise(w.Alerts)
	if moved {
		w.Forget()
		w.Logger.Warn(leaderMovedText, "damaged", w.Replicas.Damaged())
	}
}

const maxVerifyInterval = 30 * urgentInterval

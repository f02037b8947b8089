package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"worldengine/dedupe"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/logwatch"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/wire"
)

// Receipts finds the receipts of accepted handoffs by their keys, in the log by its index. A key that it does not find
// is free only if the index has all records of the town that the log must keep. The watcher raises the alerts about
// records that are missing. Receipts is safe for concurrent use.
type Receipts struct {
	log       *records.Log
	index     *index.Index
	townCache *records.TownCache // forgets a town that has changed
	watcher   *logwatch.Watcher
}

// Get returns the receipt of the handoff with a key that a town accepted, or ErrUnknownResult.
// With townID "" it is the receipt of the town that was the last to accept the key.
func (r *Receipts) Get(ctx context.Context, townID, key string) (*dedupe.Receipt, error) {
	receipt, err := r.find(ctx, townID, key)
	if err != nil || receipt != nil {
		return receipt, err
	}
	// The key may be in a record that is lost.
	broken := r.index.BrokenChains()
	if townID != "" {
		token := wire.TownToken(townID)
		broken = slices.DeleteFunc(broken, func(c index.Chain) bool { return c.Town != token })
	}
	if len(broken) > 0 {
		return nil, r.watcher.ReportHole(&broken[0])
	}
	return nil, ErrUnknownResult
}

// find is Get, but returns nil for a key that no town has accepted.
func (r *Receipts) find(ctx context.Context, townID, key string) (*dedupe.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	if _, err := r.index.CatchUp(ctx); err != nil {
		return nil, err
	}
	return r.read(ctx, townID, key)
}

// lookup returns the receipt of a key in a town, or nil if the key is free. It waits at most
// timeout until the index has the log up to seq, at or behind the record that current was read
// from. current.Seq guards the next commit: the commit fails if the key is accepted later.
func (r *Receipts) lookup(
	ctx context.Context, townID, key string, current *machine.Town, seq uint64,
	timeout time.Duration,
) (*dedupe.Receipt, error) {
	if r.index.Position() < seq {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := r.index.Wait(bounded, seq); err != nil {
			return nil, err
		}
	}
	if err := r.requireIndexed(ctx, townID, current); err != nil {
		return nil, err
	}
	return r.read(ctx, townID, key)
}

// requireIndexed returns nil if the index has every record of a town, up to the one that current was read
// from, that the log must keep. Only then a key that the index does not have is free. The error is
// records.ErrTownDamaged, which the watcher reports, or ErrLostRace if current is not the town's newest entry; the
// town is then loaded again.
func (r *Receipts) requireIndexed(ctx context.Context, townID string, current *machine.Town) error {
	token := wire.TownToken(townID)
	c := r.index.Chain(token)
	if c.Newest >= current.LoadedSeq && !c.Whole(r.index.Limits()) {
		// Another process may have repaired the town since.
		if _, err := r.index.CatchUp(ctx); err != nil {
			return err
		}
		c = r.index.Chain(token)
	}
	switch {
	case c.Newest > current.Seq: // if the log has lost that record, the next load says so
		r.townCache.Forget(townID)
		return cmp.Or(r.log.CheckContinuity(ctx), commitlog.ErrLostRace)
	case c.Newest < current.LoadedSeq:
		why := fmt.Sprintf("the index has read past log sequence %d, and lacks it", current.LoadedSeq)
		r.watcher.ReportDamage(token, 0, why)
		return fmt.Errorf("%w: town %s: %s", records.ErrTownDamaged, token, why)
	case !c.Whole(r.index.Limits()):
		return r.watcher.ReportHole(&c)
	}
	return nil
}

// read reads the receipt of a key from the record that the index names. It returns nil if
// the log no longer keeps the record; an executed handoff is then judged stale. A record that the
// log must keep and does not deliver is an ErrTownDamaged: its key is not free.
func (r *Receipts) read(ctx context.Context, townID, key string) (*dedupe.Receipt, error) {
	token := ""
	var subjects []string // none if the town is not known
	if townID != "" {
		token = wire.TownToken(townID)
		subjects = []string{layout.LogSubject(r.log.World, token)}
	}
	seq, found := r.index.Accepted(token, key)
	if !found {
		return nil, nil
	}
	rec, msg, err := r.log.RecordAt(ctx, seq, subjects...)
	switch {
	case errors.Is(err, commitlog.ErrGone), errors.Is(err, commitlog.ErrDamaged) && msg == nil:
		if !r.index.MustKeep(seq) {
			return nil, nil
		}
		r.watcher.ReportDamage(cmp.Or(token, r.index.TownAt(seq)), seq,
			fmt.Sprintf("log sequence %d is not delivered", seq))
		err = fmt.Errorf("%w: %w", records.ErrTownDamaged, err)
	case errors.Is(err, commitlog.ErrDamaged):
		err = fmt.Errorf("%w: %w", runs.ErrRunDamaged, err)
	case err == nil && msg.Header.Get(layout.KeyHeader) != key:
		return nil, nil // another key with the same fingerprint, or another log
	case err == nil && rec.Run == nil:
		err = fmt.Errorf("%w: log sequence %d has no run", runs.ErrRunDamaged, seq)
	}
	if err != nil {
		return nil, fmt.Errorf("the key %s of town %q: %w", key, townID, err)
	}
	receipt, err := dedupe.Read(rec.TownID, seq, rec.Run.RunID, rec.Result)
	if err != nil {
		return nil, fmt.Errorf("%w: log sequence %d: %w", runs.ErrRunDamaged, seq, err)
	}
	if receipt.Key != key || townID != "" && receipt.TownID != townID {
		return nil, nil
	}
	receipt.Addition = rec.Addition
	return receipt, nil
}

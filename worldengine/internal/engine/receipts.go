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
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/runs"
	"worldengine/worldengine/wire"
)

// Receipt returns the receipt of the handoff with a key that a town accepted, or ErrUnknownResult.
// With townID "" it is the receipt of the town that was the last to accept the key.
func (e *Engine) Receipt(ctx context.Context, townID, key string) (*dedupe.Receipt, error) {
	receipt, err := e.findReceipt(ctx, townID, key)
	if err != nil || receipt != nil {
		return receipt, err
	}
	// The key may be in a record that is lost.
	broken := e.index.BrokenChains()
	if townID != "" {
		token := wire.TownToken(townID)
		broken = slices.DeleteFunc(broken, func(c index.Chain) bool { return c.Town != token })
	}
	if len(broken) > 0 {
		return nil, e.watcher.ReportHole(&broken[0])
	}
	return nil, ErrUnknownResult
}

// findReceipt is Receipt, but returns nil for a key that no town has accepted.
func (e *Engine) findReceipt(
	ctx context.Context, townID, key string,
) (*dedupe.Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	if _, err := e.index.CatchUp(ctx); err != nil {
		return nil, err
	}
	return e.storedReceipt(ctx, townID, key)
}

// lookupKey returns the receipt of a key in a town, or nil if the key is free. It waits at most
// timeout until the index has the log up to seq, at or behind the record that current was read
// from. current.Seq guards the next commit: the commit fails if the key is accepted later.
func (e *Engine) lookupKey(
	ctx context.Context, townID, key string, current *machine.Town, seq uint64,
	timeout time.Duration,
) (*dedupe.Receipt, error) {
	if e.index.Position() < seq {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := e.index.Wait(bounded, seq); err != nil {
			return nil, err
		}
	}
	if err := e.requireIndexed(ctx, townID, current); err != nil {
		return nil, err
	}
	return e.storedReceipt(ctx, townID, key)
}

// requireIndexed returns nil if the index has every record of a town, up to the one that current was read
// from, that the log must keep. Only then a key that the index does not have is free. The error is
// records.ErrTownDamaged, or ErrLostRace if current is not the town's newest entry.
func (e *Engine) requireIndexed(
	ctx context.Context, townID string, current *machine.Town,
) error {
	token := wire.TownToken(townID)
	c := e.index.Chain(token)
	if c.Newest >= current.LoadedSeq && !c.Whole(e.index.Limits()) {
		// Another process may have repaired the town since.
		if _, err := e.index.CatchUp(ctx); err != nil {
			return err
		}
		c = e.index.Chain(token)
	}
	switch {
	case c.Newest > current.Seq: // if the log has lost that record, the next load says so
		e.towns.Forget(townID)
		return cmp.Or(e.log.CheckContinuity(ctx), commitlog.ErrLostRace)
	case c.Newest < current.LoadedSeq:
		why := fmt.Sprintf("the index has read past log sequence %d, and lacks it", current.LoadedSeq)
		e.watcher.ReportDamage(token, 0, why)
		return fmt.Errorf("%w: town %s: %s", records.ErrTownDamaged, token, why)
	case !c.Whole(e.index.Limits()):
		return e.watcher.ReportHole(&c)
	}
	return nil
}

// requiredHistory returns the required history of a town whose last message is at a sequence. If the index does
// not reach it, the error is ErrIndexBehind.
func (e *Engine) requiredHistory(ctx context.Context, townID string, seq uint64) (records.RequiredHistory, error) {
	token := wire.TownToken(townID)
	needs, newest := e.index.RequiredHistory(token)
	if newest >= seq {
		return needs, nil
	}
	if err := e.index.Wait(ctx, seq); err != nil {
		return records.RequiredHistory{}, err
	}
	needs, _ = e.index.RequiredHistory(token)
	return needs, nil
}

// storedReceipt reads the receipt of a key from the record that the index names. It returns nil if
// the log no longer keeps the record; an executed handoff is then judged stale. A record that the
// log must keep and does not deliver is an ErrTownDamaged: its key is not free.
func (e *Engine) storedReceipt(
	ctx context.Context, townID, key string,
) (*dedupe.Receipt, error) {
	token := ""
	var subjects []string // none if the town is not known
	if townID != "" {
		token = wire.TownToken(townID)
		subjects = []string{layout.LogSubject(e.config.World, token)}
	}
	seq, found := e.index.Accepted(token, key)
	if !found {
		return nil, nil
	}
	rec, msg, err := e.log.RecordAt(ctx, seq, subjects...)
	switch {
	case errors.Is(err, commitlog.ErrGone), errors.Is(err, commitlog.ErrDamaged) && msg == nil:
		if !e.index.MustKeep(seq) {
			return nil, nil
		}
		e.watcher.ReportDamage(cmp.Or(token, e.index.TownAt(seq)), seq,
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

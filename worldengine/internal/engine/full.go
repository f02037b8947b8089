package engine

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

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

// fullTowns has the towns whose history had no room for a record since the last call of all.
type fullTowns struct {
	changed chan struct{} // has an element after add; nil in tests without watchHistories
	mu      sync.Mutex
	towns   map[string]records.RequiredHistory
}

func (f *fullTowns) add(townID string, needs records.RequiredHistory) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.towns == nil {
		f.towns = map[string]records.RequiredHistory{}
	}
	f.towns[townID] = needs
	select {
	case f.changed <- struct{}{}:
	default: // watchHistories is about to look
	}
}

func (f *fullTowns) all() map[string]records.RequiredHistory {
	f.mu.Lock()
	defer f.mu.Unlock()
	towns := f.towns
	f.towns = nil
	return towns
}

// Until ctx is done, watchHistories raises HISTORY_FULL for each town whose history is full, and
// HISTORY_RECOVERED when it has room again: once each, even if servers end in between.
func (e *Engine) watchHistories(ctx context.Context) {
	since := e.recallFull(ctx)
	for ctx.Err() == nil {
		if len(since) > 0 {
			_ = backoff.Sleep(ctx, pollPause)
		} else {
			select {
			case <-e.fullTowns.changed:
			case <-ctx.Done():
				return
			}
		}
		full := e.fullTowns.all()
		for _, townID := range slices.Sorted(maps.Keys(full)) {
			if _, known := since[townID]; known {
				continue
			}
			needs := full[townID]
			since[townID] = e.config.Now()
			e.alerts.Raise(alerts.HistoryFull.AlertSince(alerts.Subject{TownID: townID}, since[townID],
				"{failed}", strconv.FormatUint(uint64(needs.FailedHandoffs), 10),
				"{epoch}", strconv.FormatInt(needs.Epoch, 10)))
		}
		if len(since) == 0 || !e.stepper.Serves() {
			continue
		}
		if _, err := e.index.Sync(ctx); err != nil {
			continue
		}
		for _, townID := range slices.Sorted(maps.Keys(since)) {
			needs, _ := e.index.RequiredHistory(wire.TownToken(townID))
			if e.log.CheckHistoryRoom(needs, records.TownPriorityHandoff) == nil {
				e.alerts.Raise(alerts.HistoryRecovered.AlertSince(alerts.Subject{TownID: townID}, since[townID]))
				delete(since, townID)
			}
		}
	}
}

// recallFull returns the towns whose history was full when an earlier engine ended, with the times
// of the alerts. It retries until ctx is done.
func (e *Engine) recallFull(ctx context.Context) map[string]time.Time {
	raised, err := e.alerts.All(ctx)
	for ; err != nil && backoff.Sleep(ctx, pollPause) == nil; raised, err = e.alerts.All(ctx) {
	}
	towns := map[string]time.Time{}
	for i := range raised {
		since, err := time.Parse(time.RFC3339Nano, raised[i].Since)
		switch code := raised[i].Code; {
		case err != nil: // of another server's version
		case code == runevents.HistoryFull:
			towns[raised[i].TownID] = since
		case code == runevents.HistoryRecovered:
			delete(towns, raised[i].TownID)
		}
	}
	return towns
}

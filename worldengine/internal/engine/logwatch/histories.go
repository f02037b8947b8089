package logwatch

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// histories are the towns whose history is full. Each gets one HISTORY_FULL, and then one HISTORY_RECOVERED, even if
// servers end in between.
type histories struct {
	mu    sync.Mutex
	fresh map[string]records.RequiredHistory // the towns that have no alert yet
	// since has the other towns, and the times of their alerts; nil until the alerts of earlier engines were read.
	since map[string]time.Time
}

// any reports whether the history of any town is full.
func (h *histories) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.fresh)+len(h.since) > 0
}

// NoteHistoryFull makes the Watcher look at a town whose history had no room for a record, unless it is known.
func (w *Watcher) NoteHistoryFull(townID string, needs records.RequiredHistory) {
	h := &w.histories
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.since[townID]; known {
		return
	}
	if h.fresh == nil {
		h.fresh = map[string]records.RequiredHistory{}
	}
	h.fresh[townID] = needs
	w.noRoom.set()
}

// checkHistories raises HISTORY_FULL for each town whose history is full, and HISTORY_RECOVERED when it has room
// again. It does neither as long as the alerts of earlier engines cannot be read.
func (w *Watcher) checkHistories(ctx context.Context) {
	if w.histories.since == nil && w.recallHistories(ctx) != nil {
		return
	}
	full := w.raiseFull()
	if len(full) == 0 || !w.Serves() || bounded(ctx, w.sync) != nil {
		return
	}
	for _, townID := range full {
		needs, _ := w.Index.RequiredHistory(wire.TownToken(townID))
		if w.Log.CheckHistoryRoom(needs, records.TownPriorityHandoff) == nil {
			w.raiseRecovered(townID)
		}
	}
}

// raiseFull raises the alerts of the fresh towns, and returns all towns.
func (w *Watcher) raiseFull() []string {
	h := &w.histories
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, townID := range slices.Sorted(maps.Keys(h.fresh)) {
		h.since[townID] = w.Now()
		w.Alerts.Raise(alerts.HistoryFull.AlertSince(alerts.About{TownID: townID}, h.since[townID],
			"{failed}", strconv.FormatUint(uint64(h.fresh[townID].FailedHandoffs), 10),
			"{epoch}", strconv.FormatInt(h.fresh[townID].Epoch, 10)))
	}
	h.fresh = nil
	return slices.Sorted(maps.Keys(h.since))
}

func (w *Watcher) raiseRecovered(townID string) {
	h := &w.histories
	h.mu.Lock()
	defer h.mu.Unlock()
	w.Alerts.Raise(alerts.HistoryRecovered.AlertSince(alerts.About{TownID: townID}, h.since[townID]))
	delete(h.since, townID)
}

// recallHistories recalls the towns whose history was full when an earlier engine ended, with the times of the
// alerts.
func (w *Watcher) recallHistories(ctx context.Context) error {
	raised, err := w.Alerts.All(ctx)
	if err != nil {
		return err
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
	h := &w.histories
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = towns
	return nil
}

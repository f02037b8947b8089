package logwatch

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/wire"
)

// NoteStorageFull makes the Watcher look at the storage, unless it knows that nothing can be stored.
func (w *Watcher) NoteStorageFull() {
	if w.fullSince.Load() == nil {
		w.noRoom.Wake()
	}
}

// checkStorage raises STORAGE_FAILED when nothing can be stored, and STORAGE_RECOVERED when storing works again.
// It reports whether nothing can be stored.
func (w *Watcher) checkStorage() (full bool) {
	err, since := w.Log.StorageError(), w.fullSince.Load()
	switch {
	case err != nil && since == nil:
		w.fullSince.Store(new(w.Now()))
		w.Alerts.Raise(alerts.StorageFailed.Alert(alerts.About{},
			"{error}", strings.TrimSuffix(phrase.Sentence(err), ".")))
	case err == nil && since != nil && !w.Log.AppendRefused(): // else nothing was stored since
		w.fullSince.Store(nil)
		w.Alerts.Raise(alerts.StorageRecovered.Alert(alerts.About{}, "{since}", runevents.Timestamp(*since)))
	}
	return w.fullSince.Load() != nil
}

// fullHistory is a town whose history has no room. It gets one HISTORY_FULL, and then one HISTORY_RECOVERED, even if
// servers end in between.
type fullHistory struct {
	needs records.RequiredHistory
	since time.Time // of HISTORY_FULL; zero before. watch's alone
}

// NoteHistoryFull makes the Watcher look at a town whose history had no room for a record, unless it is known.
func (w *Watcher) NoteHistoryFull(townID string, needs records.RequiredHistory) {
	if _, known := w.histories.LoadOrStore(townID, &fullHistory{needs: needs}); !known {
		w.noRoom.Wake()
	}
}

// checkHistories raises HISTORY_FULL for each town whose history is full, and HISTORY_RECOVERED when it has room
// again. It does neither as long as the alerts of earlier engines cannot be read. It reports whether a history is
// full.
func (w *Watcher) checkHistories(ctx context.Context) (full bool) {
	var towns []string
	for townID := range w.histories.Range {
		towns = append(towns, townID.(string))
	}
	slices.Sort(towns)
	followed := len(towns) > 0 && w.HasLease() && bounded(ctx, w.sync) == nil
	for _, townID := range towns {
		if w.recalled {
			w.checkHistory(townID, followed)
		}
	}
	return len(towns) > 0
}

// checkHistory raises the alerts about a town whose history is, or was, full. If the index has not followed the log,
// the history may be as full as before.
func (w *Watcher) checkHistory(townID string, followed bool) {
	found, _ := w.histories.Load(townID)
	h, about := found.(*fullHistory), alerts.About{TownID: townID}
	if h.since.IsZero() {
		h.since = w.Now()
		w.Alerts.Raise(alerts.HistoryFull.AlertSince(about, h.since,
			"{failed}", strconv.FormatUint(uint64(h.needs.FailedHandoffs), 10),
			"{epoch}", strconv.FormatInt(h.needs.Epoch, 10)))
	}
	needs, _ := w.Index.RequiredHistory(wire.TownToken(townID))
	if followed && w.Log.CheckHistoryRoom(needs, records.TownPriorityHandoff) == nil {
		w.histories.Delete(townID)
		w.Alerts.Raise(alerts.HistoryRecovered.AlertSince(about, h.since))
	}
}

// recall recalls the storage and the histories that were full when an earlier engine ended, with the times of the
// alerts.
func (w *Watcher) recall(ctx context.Context) error {
	raised, err := w.Alerts.All(ctx)
	if err == nil && w.Log.CheckStorage != nil { // else only an append can find that there is room again
		if since := w.Alerts.StorageFailedSince(ctx); !since.IsZero() {
			w.fullSince.CompareAndSwap(nil, &since)
		}
	}
	full := map[string]time.Time{}
	for i := range raised {
		since, err := time.Parse(time.RFC3339Nano, raised[i].Since)
		switch code := raised[i].Code; {
		case err != nil: // of another server's version
		case code == runevents.HistoryFull:
			full[raised[i].TownID] = since
		case code == runevents.HistoryRecovered:
			delete(full, raised[i].TownID)
		}
	}
	for townID, since := range full {
		w.histories.Store(townID, &fullHistory{since: since})
	}
	return err
}

package logwatch

import (
	"context"
	"strings"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
)

// recallStorage recalls whether the storage was full when an earlier engine ended.
func (w *Watcher) recallStorage(ctx context.Context) {
	w.failedSince = w.Alerts.StorageFailedSince(ctx)
	w.storageFull.Store(!w.failedSince.IsZero())
}

// NoteStorageFull makes the Watcher look at the storage, unless it knows that nothing can be stored.
func (w *Watcher) NoteStorageFull() {
	if !w.storageFull.Load() {
		w.noRoom.set()
	}
}

// checkStorage raises STORAGE_FAILED when nothing can be stored, and STORAGE_RECOVERED when storing works again.
func (w *Watcher) checkStorage() {
	err := w.Log.StorageError()
	switch full := err != nil; {
	case full == w.storageFull.Load(): // nothing has changed
	case full:
		w.storageFull.Store(true)
		w.failedSince = w.Now()
		w.Alerts.Raise(alerts.StorageFailed.Alert(alerts.About{},
			"{error}", strings.TrimSuffix(phrase.Sentence(err), ".")))
	case !w.Log.AppendRefused(): // else nothing was stored since
		w.storageFull.Store(false)
		w.Alerts.Raise(alerts.StorageRecovered.Alert(alerts.About{},
			"{since}", runevents.Timestamp(w.failedSince)))
	}
}

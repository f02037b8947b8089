package engine

import (
	"context"
	"strings"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/alerts"
)

// watchStorage raises StorageFailed when nothing can be stored, and StorageRecovered when storing
// works again. If Config.Disk is set, StorageRecovered also follows a StorageFailed of an earlier
// engine.
func (e *Engine) watchStorage(ctx context.Context) {
	var since time.Time
	if e.config.Storage.Disk != nil {
		since = e.alerts.StorageFailedSince(ctx)
	}
	refused := !since.IsZero()
	for {
		err := e.log.StorageError()
		switch full := err != nil; {
		case full == refused: // nothing has changed
		case full:
			refused, since = true, e.config.Now()
			e.alerts.Raise(alerts.StorageFailed.Alert(alerts.Subject{},
				"{error}", strings.TrimSuffix(phrase.Sentence(err), ".")))
		case !e.log.AppendRefused(): // else nothing was stored since
			refused = false
			e.alerts.Raise(alerts.StorageRecovered.Alert(alerts.Subject{},
				"{since}", runevents.Timestamp(since)))
		}
		pause := idlePause
		if refused {
			pause = pollPause
		}
		select {
		case <-e.outOfRoom:
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// noteOutOfRoom has watchStorage look at the storage.
func (e *Engine) noteOutOfRoom() {
	select {
	case e.outOfRoom <- struct{}{}:
	default: // it is about to look
	}
}

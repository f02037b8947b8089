package commitlog

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/backoff"
)

// Bounds of retry.
const (
	// maxRaces bounds the retries of one change that loses its races.
	maxRaces = 64
	// Pauses after lost races.
	minRacePause = 3 * time.Millisecond
	maxRacePause = 24 * time.Millisecond
)

// Retry calls attempt, which reads the log, decides, and commits with a guard, until it returns
// anything but ErrLostRace. It returns ErrContended after maxRaces lost races. From the second lost
// race on it pauses, longer with each: a replicated stream refuses a guard as soon as another
// append to the subject is under way, and until that is stored the subject reads as before, so that
// an immediate attempt would lose again.
func (l *Log) Retry(ctx context.Context, attempt func() error) error {
	pauses := backoff.Backoff{Min: minRacePause, Max: maxRacePause, Draw: l.Draw}
	for lost := range maxRaces {
		if lost > 1 {
			_ = pauses.Wait(ctx) // attempt finds that ctx is done
		}
		if err := attempt(); !errors.Is(err, ErrLostRace) {
			return err
		}
	}
	return ErrContended
}

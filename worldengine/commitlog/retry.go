package commitlog

import (
	"context"
	"errors"
	"time"

	"worldengine/worldengine/backoff"
)

// Bounds of retry.
const (
	// maxRaces is how often one change is tried again because another writer was first.
	maxRaces = 64
	// Pauses after lost races.
	minRacePause = 3 * time.Millisecond
	maxRacePause = 24 * time.Millisecond
)

// Retry calls attempt, which reads what the log has, decides, and commits with a guard, until it
// returns anything but ErrLostRace. It returns ErrContended when other writers were first
// maxRaces times. From the second lost race on it pauses, longer with each: a replicated stream
// refuses a guard as soon as another append is on its way to the subject; until that one is stored
// the subject reads as before, and an attempt made at once would lose again.
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

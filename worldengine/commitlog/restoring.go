package commitlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// ErrHalfRestored: a restore of the world did not finish. Run it again, or restore another backup.
var ErrHalfRestored = errors.New("worldengine: the world is being restored, or was in part: run " +
	"the restore again, or restore another backup")

// RestoringConfig returns the stream that exists until a world's restore has finished.
func RestoringConfig(world string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: wire.RestoringStream(world),
		Description: "A restore of " + world +
			" has not come to its end: no server serves it until the restore is run again",
		Subjects: []string{wire.RestoringSubject(world)},
		Replicas: max(replicas, 1),
	}
}

// RefuseHalfRestored returns ErrHalfRestored until a restore has finished.
func RefuseHalfRestored(ctx context.Context, js jetstream.JetStream, world string) error {
	err := UntilItPasses(ctx, func(ctx context.Context) error {
		_, err := js.Stream(ctx, RestoringConfig(world, 1).Name)
		return err
	})
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s", ErrHalfRestored, world)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	}
	return fmt.Errorf("worldengine: is the world being restored: %w", err)
}

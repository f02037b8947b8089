package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Format is the version of a world's stored data, in its streams and in backups. A program reads
// and writes only its own.
const Format = "3"

// formatKey is the metadata of the log's stream that has the format.
const formatKey = settingPrefix + "format"

// ErrFormat: the world, or the backup, is stored in a format that this program does not read.
var ErrFormat = errors.New("worldengine: stored by another program")

// CheckFormat returns ErrFormat unless a world is stored in the format of this program. The first
// format had no name.
func CheckFormat(world, format string) error {
	if format == Format {
		return nil
	}
	return fmt.Errorf("%w: world %s has format %s, and this one reads format %s; to carry its "+
		"towns over, serve it with the program that wrote it (restore a backup first), save them "+
		"to FILE with handoffctl town get as docs/operators.md says, and begin a new world with "+
		"handoffd --world-file FILE",
		ErrFormat, world, cmp.Or(format, "1"), Format)
}

// OpenLog returns the stream of the log of a world. The error is ErrNoWorld, ErrFormat or
// ErrLogUnavailable.
func OpenLog(
	ctx context.Context, js jetstream.JetStream, world string,
) (jetstream.Stream, error) {
	log, err := js.Stream(ctx, wire.LogStream(world))
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("%w: %s", ErrNoWorld, world)
	case err != nil:
		return nil, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, wire.LogStream(world), err)
	}
	return log, CheckFormat(world, log.CachedInfo().Config.Metadata[formatKey])
}

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

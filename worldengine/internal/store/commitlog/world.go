package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
)

// StreamConfig returns the configuration of the stream of a world's log, without the settings of the
// world.
func StreamConfig(world string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        layout.LogStream(world),
		Description: "Commit log of the world " + world + ": the truth, everything else follows it",
		Subjects: []string{
			layout.LogSubject(world, "*"), layout.RefusedSubject(world, "*"),
			layout.RunSubject(world, "*"), layout.PauseSubject(world), layout.SignalSubject(world),
			layout.SettingsSubject(world),
		},
		AllowMsgTTL:        true,          // of appended events
		AllowDirect:        replicas <= 1, // a follower's copy may be behind its leader
		AllowAtomicPublish: replicas <= 1, // for a GroupedStore
		Replicas:           max(replicas, 1),
		Duplicates:         DuplicateWindow,
		DenyDelete:         true,
		DenyPurge:          true,
		Metadata:           map[string]string{FormatKey: Format},
	}
}

// Bounds of creating a stream at an engine's start.
const (
	// firstStreamTimeout bounds the first try, streamTimeout a later one, and openTimeout all of them.
	firstStreamTimeout = time.Second
	streamTimeout      = 4 * time.Second
	openTimeout        = 30 * time.Second
)

// OpenStream creates a stream, or updates it to config. In a cluster several engines may call it at
// once. NATS never answers some requests about a stream that is being created, and refuses all
// while the cluster has no leader. So each try is bounded, and passing errors are retried.
// OpenStream creates first, and updates only a stream that exists. Creating an existing stream
// changes nothing, and no other engine loses its answer.
func OpenStream(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) (stream jetstream.Stream, err error) {
	err = RetryTransient(ctx, func(ctx context.Context) (err error) {
		stream, err = js.CreateStream(ctx, config)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = updateStream(ctx, js, config, logger)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("commitlog: stream %s: %w", config.Name, err)
	}
	return stream, nil
}

// UpdateLog updates the stream of a log to config. It returns ErrLostRace if there is no log with the
// identity in config: the world was removed, and may be made anew. NATS cannot make the update depend on
// that, so UpdateLog looks just before.
func UpdateLog(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) (stream jetstream.Stream, err error) {
	err = RetryTransient(ctx, func(ctx context.Context) (err error) {
		stream, err = updateStream(ctx, js, config, logger)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = ErrLostRace
	}
	if err != nil {
		return nil, fmt.Errorf("commitlog: stream %s: %w", config.Name, err)
	}
	return stream, nil
}

// RetryTransient calls attempt until it succeeds, fails with an error that does not pass, or
// openTimeout is over. The first call may take firstStreamTimeout, and one after a call that was not answered
// twice as long, up to streamTimeout.
func RetryTransient(ctx context.Context, attempt func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for tries := (tryTimeout{firstStreamTimeout, streamTimeout}); ; {
		_, err := tries.ask(ctx, attempt)
		if err == nil || !isTransient(err) || backoff.Sleep(ctx, retryDelay) != nil {
			return err
		}
	}
}

// updateStream updates a stream to config, unless it has that configuration. It logs how many
// messages the update discards, and when a new compression takes effect. It returns ErrLostRace if the
// stream has another identity.
func updateStream(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, config.Name)
	if err != nil {
		return nil, err
	}
	before := stream.CachedInfo()
	if Identity(before.Config) != Identity(config) {
		return nil, ErrLostRace
	}
	if isConfigured(before.Config, config) {
		return stream, nil
	}
	if before.Config.Compression != config.Compression {
		logger.Info("NATS uses the new compression of a stream, for full blocks, after its next "+
			"start", "stream", config.Name, "compression", config.Compression)
	}
	if held := int64(before.State.Msgs); 0 < config.MaxMsgs && config.MaxMsgs < held {
		logger.Warn("the oldest messages of a stream are over its limit and are discarded",
			"stream", config.Name, "messages", held-config.MaxMsgs, "limit", config.MaxMsgs)
	}
	return js.UpdateStream(ctx, config)
}

// isConfigured reports whether an update of a stream to config would change nothing. NATS would
// write the file of the configuration anew all the same, and a loss of power may then cost the file.
func isConfigured(stored, config jetstream.StreamConfig) bool {
	metadata := maps.Clone(stored.Metadata)
	maps.DeleteFunc(metadata, func(key, _ string) bool { return strings.HasPrefix(key, "_nats.") })
	if !maps.Equal(metadata, config.Metadata) {
		return false
	}
	have, want := reflect.ValueOf(stored), reflect.ValueOf(config)
	for i := range want.NumField() {
		if want.Type().Field(i).Name == "Metadata" {
			continue
		}
		a, b := have.Field(i), want.Field(i)
		unlimited := b.IsZero() && a.CanInt() && a.Int() == -1
		if !unlimited && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			return false
		}
	}
	return true
}

// Format is the version of a world's stored data, in its streams and in backups. A program reads
// and writes only its own format.
const Format = "3"

// FormatKey is the key of the format in the metadata of the log's stream.
const FormatKey = "worldengine.format"

// CheckFormat returns ErrFormat unless a world is stored in the format of this program. The first
// format had no name: "".
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
	var log jetstream.Stream
	err := retryUnanswered(ctx, func(ctx context.Context) (err error) {
		log, err = js.Stream(ctx, layout.LogStream(world))
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("%w: %s", ErrNoWorld, world)
	case err != nil:
		return nil, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, layout.LogStream(world), err)
	}
	return log, CheckFormat(world, log.CachedInfo().Config.Metadata[FormatKey])
}

// OpenReader returns the log of a world, for reading only. Its errors are OpenLog's.
func OpenReader(ctx context.Context, js jetstream.JetStream, world string) (*Log, error) {
	stream, err := OpenLog(ctx, js, world)
	if err != nil {
		return nil, err
	}
	return &Log{World: world, Stream: stream, Store: NewStore(js, stream, false)}, nil
}

// RestoreMarkConfig configures the stream that exists until a world's restore has finished.
func RestoreMarkConfig(world string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: layout.RestoringStream(world),
		Description: "A restore of " + world +
			" has not come to its end: no server serves it until the restore is run again",
		Subjects: []string{layout.RestoringSubject(world)},
		Replicas: max(replicas, 1),
	}
}

// CheckRestored returns ErrHalfRestored until a restore has finished.
func CheckRestored(ctx context.Context, js jetstream.JetStream, world string) error {
	err := RetryTransient(ctx, func(ctx context.Context) error {
		_, err := js.Stream(ctx, RestoreMarkConfig(world, 1).Name)
		return err
	})
	switch {
	case err == nil:
		return fmt.Errorf("%w: %s", ErrHalfRestored, world)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	}
	return fmt.Errorf("commitlog: cannot check whether the world is being restored: %w", err)
}

// Worlds returns the names of the worlds that have a log, in their order.
func Worlds(ctx context.Context, js jetstream.JetStream) (worlds []string, err error) {
	streams := js.StreamNames(ctx)
	for name := range streams.Name() {
		if world, ok := layout.LogWorld(name); ok {
			worlds = append(worlds, world)
		}
	}
	slices.Sort(worlds)
	return worlds, streams.Err()
}

// StreamStates returns the states of a world's streams by name. It omits a stream that is missing,
// or unanswered when ctx ends.
func StreamStates(
	ctx context.Context, js jetstream.JetStream, world string,
) map[string]jetstream.StreamState {
	all := map[string]jetstream.StreamState{}
	for _, name := range layout.Streams(world) {
		if stream, err := js.Stream(ctx, name); err == nil {
			all[name] = stream.CachedInfo().State
		}
	}
	return all
}

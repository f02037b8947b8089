package commitlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/wire"
)

// OpenWorldLog creates the stream of a world's log, or updates it to the settings.
func OpenWorldLog(
	ctx context.Context, js jetstream.JetStream, world string, s Settings, replicas int,
	logger *slog.Logger,
) (jetstream.Stream, error) {
	if unknown := s.Policy().Unknown(); len(unknown) > 0 {
		logger.Error("the world's setting require-approval names types of proposals that this "+
			"version does not know, so every proposal takes a person's approval, but in towns "+
			"with a list of their own: update this server, or change the setting with "+
			"handoffctl world settings set", "setting", s.RequireApproval, "unknown", unknown)
	}
	if s.Compress == CompressAll && replicas > 1 {
		logger.Warn("the world's setting compress is all, but streams of several replicas are not "+
			"compressed: NATS cannot mend a compressed block of a replica that was killed",
			"replicas", replicas)
	}
	log := LogStream(world, s, replicas)
	if err := UntilItPasses(ctx, func(ctx context.Context) error {
		before, err := js.Stream(ctx, log.Name)
		if err == nil {
			keepPast(&log, before.CachedInfo().Config)
		} else if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = nil
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", log.Name, err)
	}
	return OpenStream(ctx, js, log, logger)
}

// LogStream returns the stream of the log of a world.
func LogStream(world string, s Settings, replicas int) jetstream.StreamConfig {
	log := StreamConfig(world, s.HistoryPerTown, replicas)
	log.Compression, log.Metadata = s.Compress.ofLog(replicas), s.Metadata()
	return log
}

// OpenStream creates a stream, or updates it to config. In a cluster several engines may do that at
// once. The server leaves some requests about a stream that is just being made without an answer
// for ever, and refuses all while the cluster has no leader. So each try is bounded, and passing
// errors are retried. The stream is created before it is updated: creating an existing one changes
// nothing, and leaves the others' requests their answers.
func OpenStream(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) (jetstream.Stream, error) {
	var stream jetstream.Stream
	err := UntilItPasses(ctx, func(ctx context.Context) (err error) {
		stream, err = tryStream(ctx, js, config, logger)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", config.Name, err)
	}
	return stream, nil
}

// UntilItPasses calls attempt until it succeeds, fails with an error that does not pass, or
// openTimeout is over. Each call may take streamTimeout.
func UntilItPasses(ctx context.Context, attempt func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		bounded, cancel := context.WithTimeout(ctx, streamTimeout)
		err := attempt(bounded)
		cancel()
		if err == nil || !passes(err) || backoff.Sleep(ctx, RetryDelay) != nil {
			return err
		}
	}
}

func tryStream(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) (jetstream.Stream, error) {
	stream, err := js.CreateStream(ctx, config)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		if err := tellOfChanges(ctx, js, config, logger); err != nil {
			return nil, err
		}
		return js.UpdateStream(ctx, config)
	}
	return stream, err
}

// tellOfChanges warns of the messages that an update to config discards, and tells when another
// compression takes effect.
func tellOfChanges(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) error {
	stream, err := js.Stream(ctx, config.Name)
	if err != nil {
		return err
	}
	if stream.CachedInfo().Config.Compression != config.Compression {
		logger.Info("NATS compresses the full blocks of a stream otherwise once it has started "+
			"again", "stream", config.Name, "compression", config.Compression)
	}
	if config.MaxMsgs < 1 {
		return nil
	}
	if held, limit := stream.CachedInfo().State.Msgs, uint64(config.MaxMsgs); held > limit {
		logger.Warn("the oldest messages of a stream are over its limit and are discarded",
			"stream", config.Name, "messages", held-limit, "limit", limit)
	}
	return nil
}

// passes reports whether a failed request to the cluster may succeed later unchanged: it got no
// answer, the cluster has no leader at the moment, or it does not know enough of its servers yet.
func passes(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	const (
		noLeader = 10008
		noPeers  = 10005
	)
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == noLeader || api.ErrorCode == noPeers)
}

// Bounds of creating a stream at an engine's start.
const (
	// streamTimeout bounds one try, and openTimeout all of them.
	streamTimeout = 4 * time.Second
	openTimeout   = 30 * time.Second
)

// StreamStates returns the states of a world's streams by name, without those that are missing or
// unanswered before ctx ends.
func StreamStates(
	ctx context.Context, js jetstream.JetStream, world string,
) map[string]jetstream.StreamState {
	all := map[string]jetstream.StreamState{}
	for _, name := range wire.Streams(world) {
		if stream, err := js.Stream(ctx, name); err == nil {
			all[name] = stream.CachedInfo().State
		}
	}
	return all
}

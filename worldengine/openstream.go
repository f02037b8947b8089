package worldengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of making a stream at the start of an engine.
const (
	// streamTimeout bounds one try, and openTimeout all of them.
	streamTimeout = 4 * time.Second
	openTimeout   = 30 * time.Second
)

// openStream makes a stream, or updates it to config. In a cluster several engines may do that at the
// same moment, and of requests about one stream that is just being made the server leaves some without
// an answer for ever; and while the cluster has no leader it refuses all. So a try is bounded, and what
// passes is tried again. The stream is made before it is updated: a request to make what is there
// already changes nothing, and leaves the others' requests their answers.
func openStream(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		stream, err := tryStream(ctx, js, config, logger)
		if err == nil {
			return stream, nil
		}
		if !passes(err) || pause(ctx) != nil {
			return nil, fmt.Errorf("worldengine: stream %s: %w", config.Name, err)
		}
	}
}

func tryStream(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	stream, err := js.CreateStream(ctx, config)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		if err := tellDiscarded(ctx, js, config, logger); err != nil {
			return nil, err
		}
		return js.UpdateStream(ctx, config)
	}
	return stream, err
}

// tellDiscarded warns of the messages of a stream that are over the limit of config: the update to it
// discards them.
func tellDiscarded(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, logger *slog.Logger,
) error {
	if config.MaxMsgs < 1 {
		return nil
	}
	stream, err := js.Stream(ctx, config.Name)
	if err != nil {
		return err
	}
	if held, limit := stream.CachedInfo().State.Msgs, uint64(config.MaxMsgs); held > limit {
		logger.Warn("the oldest messages of a stream are over its limit and are discarded",
			"stream", config.Name, "messages", held-limit, "limit", limit)
	}
	return nil
}

// passes says whether a request to the cluster that failed so may succeed later as it is: it got no
// answer, nobody leads at the moment, or the cluster does not know enough of its servers yet.
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

package worldengine

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// sideRetention is how long dead letters and alerts are kept.
const sideRetention = 30 * 24 * time.Hour

// sideStream is a stream for operators beside the log and what is derived from it. It is bounded,
// and made again when it is gone.
type sideStream struct {
	js     jetstream.JetStream
	config jetstream.StreamConfig
}

// sideConfig is the part of such a stream's configuration that all share. What is over maxBytes
// goes first in, first out.
func sideConfig(maxBytes int64, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		MaxAge:      sideRetention,
		MaxBytes:    maxBytes,
		AllowDirect: replicas <= 1,
		Replicas:    max(replicas, 1),
	}
}

// store tries once to store msg. When nobody listens the stream is made again for the next try.
func (s *sideStream) store(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	_, err := s.js.PublishMsg(ctx, msg)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		_, createErr := s.js.CreateStream(ctx, s.config)
		return errors.Join(err, createErr)
	}
	return err
}

package alerts

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// storeTimeout bounds one try to store a message.
const storeTimeout = 3 * time.Second

// sideRetention is how long dead letters and alerts are kept.
const sideRetention = 30 * 24 * time.Hour

// SideStream is a stream for operators beside the log and what is derived from it. It is bounded,
// and made again when it is gone.
type SideStream struct {
	JetStream jetstream.JetStream
	Config    jetstream.StreamConfig
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

// Store tries once to store msg. When the stream is gone it is made again for the next try.
func (s *SideStream) Store(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := s.JetStream.PublishMsg(ctx, msg)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		_, createErr := s.JetStream.CreateStream(ctx, s.Config)
		return errors.Join(err, createErr)
	}
	return err
}

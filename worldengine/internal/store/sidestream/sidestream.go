// Package sidestream stores messages for operators in streams beside the log of a world: alerts and dead letters. Such
// a stream is made when its first message is stored, and again if it is missing.
package sidestream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/store/commitlog"
)

// storeTimeout bounds one try to store a message.
const storeTimeout = 3 * time.Second

// Config configures a stream that keeps the newest messages, for the retention and up to maxBytes.
func Config(name string, retention time.Duration, maxBytes int64, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        name,
		MaxAge:      retention,
		MaxBytes:    maxBytes,
		AllowDirect: replicas <= 1,
		Replicas:    max(replicas, 1),
	}
}

// Log is the log of the world that a stream belongs to, with its identity.
type Log struct{ World, Identity string }

// Store tries once to store a message in a stream beside a log. If the stream is missing, Store creates it for the
// next try, as long as the log exists: a removed world must leave no stream. The error is commitlog.ErrOtherLog if the
// world was removed and made anew: the message of a writer that was suspended meanwhile is about the removed world. If
// the log does not say whose it is, the message is stored: rather one about a removed world than none about this one.
func Store(
	ctx context.Context, js jetstream.JetStream, log Log, stream jetstream.StreamConfig, msg *nats.Msg,
) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	looking, cancel := context.WithTimeout(ctx, storeTimeout/3) // the log may be silent alone
	noLog := commitlog.RequireIdentity(looking, js, log.World, log.Identity)
	cancel()
	if errors.Is(noLog, commitlog.ErrOtherLog) {
		return noLog
	}
	_, err := js.PublishMsg(ctx, msg)
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	if noLog == nil {
		_, noLog = js.CreateStream(ctx, stream)
	}
	return errors.Join(err, noLog)
}

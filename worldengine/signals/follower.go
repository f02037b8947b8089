package signals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/wire"
)

// Follower hears of the signals that any server of the world has recorded. Every member must be
// set.
type Follower struct {
	Log   *commitlog.Log
	World *WorldPause
	// Cancelled is called with each run that an operator has cancelled, and with its town. Missing
	// one is harmless: the log is read before a run resumes.
	Cancelled func(townID, runID string)
	Logger    *slog.Logger
}

// Run follows the signals until ctx is done.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.read(ctx); err != nil && ctx.Err() == nil {
			f.Logger.Warn("operators' signals cannot be followed; will try again", "error", err)
			_ = backoff.Sleep(ctx, time.Second)
		}
	}
}

func (f *Follower) read(ctx context.Context) error {
	end, err := f.Log.End(ctx)
	if err != nil {
		return err
	}
	// From a sequence on, and not what is new: a consumer that has to be made anew before anything
	// came would begin later.
	consumer, err := f.Log.Stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{wire.ControlSubject(f.Log.World), wire.SignalSubject(f.Log.World)},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: end + 1,
	})
	if err != nil {
		return fmt.Errorf("worldengine: consumer of the signals: %w", err)
	}
	defer commitlog.Release(f.Log.Stream, consumer)
	// What was said before the consumer was there.
	if _, err := f.World.Read(ctx); err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullHeartbeat(commitlog.Heartbeat))
	if err != nil {
		return fmt.Errorf("worldengine: signals: %w", err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("worldengine: signals: %w", err)
		}
		f.Take(msg)
	}
}

// Take takes in a message of the control subject, or of the signals'.
func (f *Follower) Take(msg jetstream.Msg) {
	rec, err := commitlog.ReadRecord(msg.Data())
	meta, metaErr := msg.Metadata()
	switch {
	case err != nil || metaErr != nil:
		f.Logger.Error("a signal cannot be read",
			"subject", msg.Subject(), "error", errors.Join(err, metaErr))
	case rec.Kind == commitlog.KindControl:
		f.World.Set(Pause{meta.Sequence.Stream, rec.Paused})
	case rec.Kind == commitlog.KindSignal && rec.Run != nil:
		for i := range rec.Run.Events {
			f.takeCancel(&rec.Run.Events[i], rec.TownID)
		}
	}
}

// takeCancel takes in an event of a signal, if it accepts a cancellation.
func (f *Follower) takeCancel(event *runevents.Event, townID string) {
	var said lifecycle.SignalPayload
	if event.EventType != runevents.SignalAccepted || json.Unmarshal(event.Payload, &said) != nil {
		return
	}
	if said.Signal == lifecycle.SignalCancel {
		f.Cancelled(townID, said.RunID)
	}
}

package worldengine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// hold keeps a paused town's deliveries: d, whose turn it is, and those behind it. Each is told of by a
// run that is paused, and one whose run was cancelled is answered; puts and patches behind them have
// their turn. It owns the town. It returns errRest, or why d needs no other turn.
func (e *Engine) hold(ctx context.Context, d *delivery, by *PausedBy) error {
	townID := d.handoff.Proposal.TownID
	waiting := append([]*delivery{d}, e.queues.deliveries(townID)...)
	for i, w := range waiting {
		if w.answered {
			continue
		}
		if i > 0 && w.start == atOnce {
			w.start = queued
		}
		if err := e.tellPaused(ctx, w, by); err != nil {
			if w == d {
				return err
			}
			e.config.Logger.Warn("a waiting handoff cannot be told of yet", "town", townID, "error", err)
			continue
		}
		if e.cancelled.has(w.producer.Run().RunID) && w != d {
			w.answered = true
			w.done(Answer{}, ErrRunCancelled)
		}
	}
	if e.cancelled.has(d.producer.Run().RunID) {
		return ErrRunCancelled
	}
	e.queues.passBy(ctx, townID) // what an operator puts right does not wait for the end of the pause
	return errRest
}

// tellPaused stores that the run of a waiting delivery has started and is paused, once.
func (e *Engine) tellPaused(ctx context.Context, d *delivery, by *PausedBy) error {
	if d.start == resumed {
		return nil
	}
	if err := e.begin(d); err != nil {
		return err
	}
	d.producer.Restart()
	n := narrator{producer: d.producer}
	n.begin(d.handoff, d.start)
	n.run(runevents.RunPaused, pausedPayload{SignalID: by.SignalID, Reason: by.Reason})
	if n.err != nil {
		return fmt.Errorf("worldengine: the events of a run: %w", n.err)
	}
	tail, err := e.extendRun(ctx, d.handoff.Proposal.TownID, d.producer.Run(), 0, false)
	if err != nil {
		return err
	}
	d.producer.Persisted(tail.next)
	d.start = resumed
	return nil
}

// resume closes the run of a delivery that was paused, so that its end follows what others have
// appended meanwhile. It returns ErrRunCancelled where an operator was first.
func (e *Engine) resume(ctx context.Context, d *delivery) error {
	if d.start != resumed || d.closed {
		return nil
	}
	run := runevents.Run{Identity: d.producer.Run().Identity}
	told := d.producer.Run().FirstSeq - 1 // even where the messages have expired that told it
	tail, err := e.extendRun(ctx, d.handoff.Proposal.TownID, &run, told, true)
	if err != nil {
		return err
	}
	d.producer.Persisted(tail.next)
	d.closed = true
	return nil
}

// abandon ends the run of a delivery that was paused and is not going to be judged.
func (e *Engine) abandon(ctx context.Context, d *delivery, why string) {
	if d.start != resumed {
		return
	}
	d.producer.Restart()
	if err := cancelled(d.producer, "", why); err != nil {
		return
	}
	told := d.producer.Run().FirstSeq - 1
	if _, err := e.extendRun(ctx, d.handoff.Proposal.TownID, d.producer.Run(), told, true); err != nil {
		e.config.Logger.Warn("a paused run is left without an end", "run", d.producer.Run().RunID, "error", err)
	}
}

// worldPause is what the log says about the pause of the world at a sequence; by is nil where it is not
// paused.
type worldPause struct {
	seq uint64
	by  *PausedBy
}

// setWorldPause takes in what the log says about the pause of the world at seq, unless something later is
// known.
func (e *Engine) setWorldPause(seq uint64, by *PausedBy) {
	next := &worldPause{seq, by}
	for {
		before := e.worldPause.Load()
		if before.seq >= seq {
			return
		}
		if e.worldPause.CompareAndSwap(before, next) {
			e.queues.wakeAll()
			return
		}
	}
}

// followSignals takes in what operators tell any instance, until ctx is done.
func (e *Engine) followSignals(ctx context.Context) {
	for ctx.Err() == nil {
		if err := e.readSignals(ctx); err != nil && ctx.Err() == nil {
			e.config.Logger.Warn("operators' signals cannot be followed; will try again", "error", err)
			sleep(ctx, time.Second)
		}
	}
}

func (e *Engine) readSignals(ctx context.Context) error {
	end, err := e.log.end(ctx)
	if err != nil {
		return err
	}
	// From a sequence on, and not what is new: a consumer that has to be made anew before anything came
	// would begin later.
	consumer, err := e.log.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{controlSubject(e.config.World), signalSubject(e.config.World)},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: end + 1,
	})
	if err != nil {
		return fmt.Errorf("worldengine: consumer of the signals: %w", err)
	}
	defer follow.Release(e.log.stream, consumer)
	// What was said before the consumer was there.
	seq, paused, err := e.log.worldPause(ctx)
	if err != nil {
		return err
	}
	e.setWorldPause(seq, paused)
	messages, err := consumer.Messages(jetstream.PullHeartbeat(follow.Heartbeat))
	if err != nil {
		return fmt.Errorf("worldengine: signals: %w", err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		msg, err := messages.Next()
		if err != nil {
			return fmt.Errorf("worldengine: signals: %w", err)
		}
		e.takeSignal(msg)
	}
}

// takeSignal takes in a message of the control subject, or of the signals'.
func (e *Engine) takeSignal(msg jetstream.Msg) {
	rec, err := readRecord(msg.Data())
	meta, metaErr := msg.Metadata()
	switch {
	case err != nil || metaErr != nil:
		e.config.Logger.Error("a signal cannot be read", "subject", msg.Subject(), "error", errors.Join(err, metaErr))
	case rec.Kind == kindControl:
		e.setWorldPause(meta.Sequence.Stream, rec.Paused)
	case rec.Kind == kindSignal && rec.Run != nil:
		for i := range rec.Run.Events {
			e.takeCancel(&rec.Run.Events[i], rec.TownID)
		}
	}
}

// takeCancel takes in an event of a signal, if it accepts a cancellation. That a signal is missed is no
// harm: before a run goes on, the log is asked.
func (e *Engine) takeCancel(event *runevents.Event, townID string) {
	var said signalPayload
	if event.EventType != runevents.SignalAccepted || json.Unmarshal(event.Payload, &said) != nil {
		return
	}
	if said.Signal == SignalCancel {
		e.cancelled.add(said.RunID)
		e.queues.wake(townID)
	}
}

// watchDrain raises PAUSE_DRAIN_TIMEOUT where commands are still being applied when a pause's drain
// timeout passes.
func (e *Engine) watchDrain(s *Signal, by *PausedBy) {
	if by == nil {
		return
	}
	seen := time.Now().Add(2 * e.config.Plugin.Resend) // what others apply shows by then, by its mark
	e.background.Go(func() {
		for by.draining(time.Now()) {
			if sleep(e.applyContext, restPause); e.applyContext.Err() != nil {
				return
			}
			c, err := e.Control(e.applyContext, s.TownID)
			if errors.Is(err, ErrUnknownTown) || err == nil && (c.By == nil || c.By.SignalID != by.SignalID) {
				return // resumed
			}
			if err == nil && c.Applying == 0 && (s.TownID != "" || time.Now().After(seen)) {
				return // drained
			}
		}
		e.raise(e.applyAlert(runevents.PauseDrainTimeout, by.SignalID, "", fmt.Sprintf(
			"Commands were still being applied %s after the pause of %s.",
			time.Duration(by.DrainTimeoutMs)*time.Millisecond, orDefault(s.TownID, "the world"))))
	})
}

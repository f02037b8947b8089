package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// errOrder ends a reading in which messages are missing: they are read again.
var errOrder = errors.New("projection: the stream's messages did not come in order")

// errAway says that there is no use in asking before the connection is there again.
var errAway = errors.New("projection: NATS is away")

// read reads the stream from where the runner stands until something goes wrong, which the error
// says. Its consumer is an ordered one that never goes on by itself: only here is known whether the
// stream still is the same.
func (r *Runner) read(ctx context.Context) error {
	if !r.config.JetStream.Conn().IsConnected() {
		return errAway
	}
	stream, err := r.config.JetStream.Stream(ctx, r.config.Stream)
	if err != nil {
		return fmt.Errorf("projection: stream %s: %w", r.config.Stream, err)
	}
	r.store.stream = stream
	r.mu.Lock()
	from := r.place.enter(stream.CachedInfo(), r.config.Now(), r.config.Lookback)
	r.mu.Unlock()
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 5 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("projection: consumer of the stream %s: %w", r.config.Stream, err)
	}
	defer follow.Release(stream, consumer)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	received := make(chan event, window)
	reading, err := consumer.Consume(r.receive(ctx, received, cancel), jetstream.PullMaxMessages(window),
		jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { cancel(err) }))
	if err != nil {
		return fmt.Errorf("projection: messages of the stream %s: %w", r.config.Stream, err)
	}
	defer reading.Stop()
	return r.project(ctx, received)
}

// event is a message of the stream, with its place there.
type event struct {
	msg jetstream.Msg
	seq uint64
}

// receive returns what hands on the messages of a consumer as long as none is missing.
func (r *Runner) receive(
	ctx context.Context, received chan<- event, cancel context.CancelCauseFunc,
) jetstream.MessageHandler {
	next := uint64(1)
	return func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil || meta.Sequence.Consumer != next {
			cancel(errors.Join(errOrder, err))
			return
		}
		next++
		r.mu.Lock()
		r.place.see(meta.Sequence.Stream, meta.NumPending)
		r.mu.Unlock()
		select {
		case received <- event{msg, meta.Sequence.Stream}:
		case <-ctx.Done():
		}
	}
}

// project takes in what is received, as much at once as there is, and looks after the rest now and
// then.
func (r *Runner) project(ctx context.Context, received <-chan event) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case first := <-received:
			batch := []event{first}
			for len(received) > 0 && len(batch) < window {
				batch = append(batch, <-received)
			}
			r.take(ctx, batch)
		case <-tick.C:
			if err := r.look(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take projects events.
func (r *Runner) take(ctx context.Context, batch []event) {
	before := r.position()
	records := make([]runevents.Record, 0, len(batch))
	var oldest, latest time.Time // persistedAt of what is new
	for _, e := range batch {
		record, err := decode(e.msg.Data())
		if err != nil {
			r.config.Logger.Error("a run event cannot be read and is skipped",
				"subject", e.msg.Subject(), "sequence", e.seq, "error", err)
			continue
		}
		records = append(records, record)
		if e.seq > before && oldest.IsZero() {
			oldest = persistedAt(&record)
		}
	}
	if len(records) > 0 {
		latest = persistedAt(&records[len(records)-1])
		r.projector.Behind(oldest)
		if _, err := r.projector.Apply(ctx, records); err != nil {
			r.config.Logger.Warn("a run cannot be projected; will try again", "error", err)
		}
	}
	r.mu.Lock()
	r.place.take(batch[len(batch)-1].seq, latest)
	r.mu.Unlock()
	r.tellLag()
}

// position returns the place of the last event that was projected.
func (r *Runner) position() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place.seq
}

// persistedAt returns when a record was persisted; zero where it does not say.
func persistedAt(record *runevents.Record) time.Time {
	at, _ := time.Parse(time.RFC3339, record.PersistedAt)
	return at
}

// look sees where the stream ends and tries the paused runs again.
func (r *Runner) look(ctx context.Context) error {
	now := r.config.Now()
	info, err := r.store.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("projection: state of the stream %s: %w", r.config.Stream, err)
	}
	end, seq := info.State.LastSeq, r.position()
	if end > seq {
		// Messages that were removed will not come.
		_, err := r.store.stream.GetMsg(ctx, seq+1, jetstream.WithGetMsgSubject(r.config.Subject("*")))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			end = seq
		}
	}
	r.mu.Lock()
	r.place.look(end, now)
	r.mu.Unlock()
	if len(r.projector.Stale()) > 0 {
		if _, err := r.projector.ResumeStale(ctx); err != nil {
			r.config.Logger.Warn("a run cannot be read again; will try again", "error", err)
		}
	}
	r.tellLag()
	return nil
}

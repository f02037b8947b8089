package projection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/follow"
)

// errOrder ends a reading in which messages are missing: they are read again.
var errOrder = errors.New("projection: the source's messages did not come in order")

// errAway says that there is no use in asking before the connection is there again.
var errAway = errors.New("projection: NATS is away")

// read reads the source from where the runner stands until something goes wrong, which the error
// says. Its consumer is an ordered one that never goes on by itself: only here is known whether the
// stream still is the same.
func (r *Runner) read(ctx context.Context) error {
	nc := r.config.JetStream.Conn()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(lost)
	if !nc.IsConnected() {
		return errAway
	}
	go func() { // what was asked of a server that is gone has no answer
		select {
		case <-lost:
			cancel(errAway)
		case <-ctx.Done():
		}
	}()
	err := r.readConnected(ctx, cancel)
	if errors.Is(context.Cause(ctx), errAway) {
		return errAway
	}
	return err
}

// readConnected reads the source until something goes wrong. cancel ends ctx with the reason.
func (r *Runner) readConnected(ctx context.Context, cancel context.CancelCauseFunc) error {
	source, err := r.open(ctx)
	if err != nil {
		return err
	}
	before, err := r.load(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.place.resume(before)
	from := r.place.enter(source.CachedInfo(), r.config.Now(), r.config.Lookback)
	r.mu.Unlock()
	consumer, err := source.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		FilterSubject: r.config.Source.Subject, HeadersOnly: true,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
		Replicas: 1, InactiveThreshold: 5 * time.Second,
	})
	if err != nil {
		return fmt.Errorf("projection: consumer of the stream %s: %w", r.config.Source.Stream, err)
	}
	defer follow.Release(source, consumer)
	r.mu.Lock()
	r.place.begin(consumer.CachedInfo().NumPending)
	r.mu.Unlock()
	received := make(chan mention, window)
	reading, err := consumer.Consume(r.receive(ctx, received, cancel),
		jetstream.PullMaxMessages(window),
		jetstream.PullExpiry(5*time.Second), jetstream.PullHeartbeat(time.Second),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { cancel(err) }))
	if err != nil {
		return fmt.Errorf("projection: messages of the stream %s: %w", r.config.Source.Stream, err)
	}
	defer reading.Stop()
	return r.project(ctx, consumer, received)
}

// open returns the source, and gives the store the stream of events.
func (r *Runner) open(ctx context.Context) (jetstream.Stream, error) {
	events, err := r.config.JetStream.Stream(ctx, r.config.Stream)
	if err != nil {
		return nil, fmt.Errorf("projection: stream %s: %w", r.config.Stream, err)
	}
	r.store.open(events)
	source, err := r.config.JetStream.Stream(ctx, r.config.Source.Stream)
	if err != nil {
		return nil, fmt.Errorf("projection: stream %s: %w", r.config.Source.Stream, err)
	}
	return source, nil
}

// mention is a message of the source: the run that has new events, "" where it is not to be looked
// at, its town, or anyTown, and when and where the source has stored that.
type mention struct {
	town   string
	runID  string
	seq    uint64
	stored time.Time
}

// receive returns what hands on the mentions of a consumer as long as none is missing.
func (r *Runner) receive(
	ctx context.Context, received chan<- mention, cancel context.CancelCauseFunc,
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
		r.place.see(meta.NumPending)
		r.mu.Unlock()
		runID := ""
		if mentions := r.config.Source.Mentions; mentions == nil || mentions(msg.Headers()) {
			runID = msg.Subject()[strings.LastIndexByte(msg.Subject(), '.')+1:]
		}
		select {
		case received <- mention{anyTown, runID, meta.Sequence.Stream, meta.Timestamp}:
		case <-ctx.Done():
		}
	}
}

// project looks at the runs that are mentioned, at those of as many mentions at once as there are,
// and looks after the rest now and then.
func (r *Runner) project(
	ctx context.Context, consumer jetstream.Consumer, received <-chan mention,
) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case first := <-received:
			if err := r.take(ctx, first, received); err != nil {
				return err
			}
		case m := <-r.samples:
			if err := r.wait(ctx, m.seq); err != nil {
				return err
			}
			if err := r.lookAt(ctx, m); err != nil {
				return err
			}
		case <-tick.C:
			if err := r.look(ctx, consumer); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take projects the runs of the mentions that have come, as soon as the event stream has what they
// mention.
func (r *Runner) take(ctx context.Context, first mention, received <-chan mention) error {
	batch := []mention{first}
	for more := true; more && len(batch) < window; {
		select {
		case m := <-received:
			batch = append(batch, m)
		default:
			more = false
		}
	}
	if err := r.lookAtAll(ctx, batch); err != nil {
		return err
	}
	last := batch[len(batch)-1]
	r.mu.Lock()
	r.place.take(last.seq, len(batch), last.stored)
	r.mu.Unlock()
	r.tellLag()
	return nil
}

// lookAtAll looks at each run that a batch mentions once.
func (r *Runner) lookAtAll(ctx context.Context, batch []mention) error {
	looked := map[string]bool{"": true}
	for i, m := range batch {
		if looked[m.runID] {
			continue
		}
		if len(looked) == 1 {
			r.behind(batch[i:])
			if err := r.wait(ctx, batch[len(batch)-1].seq); err != nil {
				return err
			}
		}
		looked[m.runID] = true
		if err := r.lookAt(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// behind reports to the projector how long the oldest new mention of a batch has waited.
func (r *Runner) behind(batch []mention) {
	before := r.Position()
	for _, m := range batch {
		if m.seq > before {
			r.projector.Behind(m.stored)
			return
		}
	}
}

// wait waits until the event stream has what the source has up to a sequence, and reports the lag
// meanwhile.
func (r *Runner) wait(ctx context.Context, seq uint64) error {
	for r.config.Source.Wait != nil {
		bounded, cancel := context.WithTimeout(ctx, interval)
		err := r.config.Source.Wait(bounded, seq)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.tellLag()
	}
	return nil
}

// lookAt projects what the event stream has of a mentioned run that is not projected yet. An error
// means that the stream could not be asked.
func (r *Runner) lookAt(ctx context.Context, m mention) error {
	for last := int64(-1); ; {
		held, _ := r.projector.Snapshot(m.runID)
		if held.LastEventSeq == last {
			return nil // it is paused
		}
		last = held.LastEventSeq
		records, err := r.store.page(ctx, m.town, m.runID, last, pageEvents)
		if errors.Is(err, runevents.ErrDiscarded) {
			return nil // what is left cannot be projected
		}
		if err != nil {
			return err
		}
		if len(records) > 0 {
			if _, err := r.projector.Apply(ctx, records); err != nil {
				r.config.Logger.Warn("a run cannot be projected; will try again", "runId",
					m.runID, "error", err)
			}
		}
		if len(records) < pageEvents {
			return nil
		}
	}
}

// Position returns the place of the last mention whose run was projected.
func (r *Runner) Position() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place.seq
}

// look sees whether more is to come, and tries the paused runs again.
func (r *Runner) look(ctx context.Context, consumer jetstream.Consumer) error {
	now := r.config.Now()
	info, err := consumer.Info(ctx)
	if err != nil {
		return fmt.Errorf("projection: consumer of the stream %s: %w", r.config.Source.Stream, err)
	}
	r.mu.Lock()
	r.place.look(info.Delivered.Consumer, info.NumPending, now)
	r.mu.Unlock()
	if len(r.projector.Stale()) > 0 {
		if _, err := r.projector.ResumeStale(ctx); err != nil {
			r.config.Logger.Warn("a run cannot be read again; will try again", "error", err)
		}
	}
	r.tellLag()
	return r.save(ctx)
}

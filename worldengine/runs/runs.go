package runs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// Events are some events of a run, each the JSON of a RunEventRecord, in the order of runSeq.
type Events struct {
	Events []jsontext.Value
	// LastEventSeq is the highest runSeq that the run has, on this page or not.
	LastEventSeq int64
	// Mark is the mark of the last event of the page; 0 where there is none.
	Mark uint64
}

// PageBytes bounds a page: it ends before the event, or row, with which it would have more bytes,
// but has one at least. A message of that size fits into NATS with its default settings.
const PageBytes = 1_000_000

// Events returns up to limit events of a run whose runSeq is above afterSeq, fewer where they have
// more than PageBytes; LastEventSeq tells whether there are others. A run that has just been
// answered is complete here; ErrUnknownRun says that no events of it are kept, or not the first
// ones above afterSeq, ErrRunDamaged that the last of them cannot be read, and ErrEventsBehind that
// the event stream is too far behind the log to tell.
func (s *Store) Events(
	ctx context.Context, runID string, afterSeq int64, limit int,
) (Events, error) {
	return s.EventsAfter(ctx, runID, After{Seq: afterSeq}, limit)
}

// After is behind which of its events a run is read: behind a runSeq and behind a mark.
type After struct {
	Seq  int64
	Mark uint64
}

// EventsAfter is Events of those that are also behind a mark.
func (s *Store) EventsAfter(
	ctx context.Context, runID string, after After, limit int,
) (Events, error) {
	if err := s.catchUpRun(ctx, runID); err != nil {
		return Events{}, err
	}
	return s.stored(ctx, runID, after, limit)
}

// catchUpRun waits until the event stream has of a run what the log has.
func (s *Store) catchUpRun(ctx context.Context, runID string) error {
	last, err := s.lastEvent(ctx, runID)
	if err != nil {
		return err
	}
	if last == nil || !last.EventType.EndsRun() {
		err = s.catchUp(ctx)
	} else {
		err = s.catchUpAppended(ctx, runID)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEventsBehind, err)
	}
	return nil
}

// stored is Events of what the event stream has now.
func (s *Store) stored(
	ctx context.Context, runID string, after After, limit int,
) (Events, error) {
	last, err := s.lastEvent(ctx, runID)
	if err != nil {
		return Events{}, err
	}
	if last == nil {
		return Events{}, s.noLastEvent(ctx, runID)
	}
	page, room := Events{Events: []jsontext.Value{}, LastEventSeq: last.RunSeq}, PageBytes
	err = s.eachEvent(ctx, last.subject, last.streamSeq, func(event *storedEvent) bool {
		if event.RunSeq <= after.Seq {
			return true
		}
		if event.mark <= after.Mark && after.Mark > 0 {
			after.Seq = event.RunSeq
			return true
		}
		if room -= len(event.data); room < 0 && len(page.Events) > 0 {
			return false
		}
		page.Events, page.Mark = append(page.Events, event.data), event.mark
		return len(page.Events) < limit
	})
	if err != nil {
		return Events{}, err
	}
	if err := s.checkBeginning(ctx, last.subject, after.Seq); err != nil {
		return Events{}, err
	}
	return page, nil
}

// atOnce is how many events of a run are read with one request.
const atOnce = 256

// eachEvent visits the events of a run, which are the messages of one subject, in the order of
// runSeq, up to a sequence of the event stream, until visit returns false.
func (s *Store) eachEvent(
	ctx context.Context, subject string, to uint64, visit func(*storedEvent) bool,
) error {
	for from := uint64(1); from <= to; {
		batch, err := commitlog.NextStoredBatch(ctx, s.config.JetStream, s.Stream,
			subject, from, atOnce)
		if len(batch) == 0 || err != nil {
			return err
		}
		for _, msg := range batch {
			event, err := readEvent(msg, nil)
			if err != nil {
				return err
			}
			if !visit(event) {
				return nil
			}
		}
		from = batch[len(batch)-1].Sequence + 1
	}
	return nil
}

// checkBeginning returns ErrUnknownRun for a run of which an event above afterSeq was discarded
// with all that was before it, by age or by number: what is left would tell another run. It is
// asked after the events were read: the oldest go first, so that with the first one they all were
// there. Where the stream has lost nothing, a run without its first event is damage, which its
// readers are to see.
func (s *Store) checkBeginning(ctx context.Context, subject string, afterSeq int64) error {
	first, err := s.event(ctx, jetstream.WithGetMsgSubject(subject), 1)
	if err != nil {
		return err
	}
	if first == nil {
		return ErrUnknownRun
	}
	if first.RunSeq-1 <= afterSeq {
		return nil
	}
	info, err := s.Stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
	}
	if info.State.FirstSeq > 1 {
		return ErrUnknownRun
	}
	return nil
}

// catchUpAppended waits until what others than the engine appended to a run is in the event stream:
// they may do so after its end.
func (s *Store) catchUpAppended(ctx context.Context, runID string) error {
	ctx, cancel := context.WithTimeout(ctx, commitlog.CatchUpTimeout)
	defer cancel()
	last, err := s.log.LastEvents(ctx, runID)
	if err != nil || last == nil {
		return err
	}
	return s.Follower.Wait(ctx, last.Sequence)
}

// storedEvent is a message of the event stream, with what reading a run needs of its record.
type storedEvent struct {
	RunSeq    int64               `json:"runSeq"`
	EventType runevents.EventType `json:"eventType"`

	data      jsontext.Value
	subject   string
	streamSeq uint64
	// the log sequence of the record that it was derived from; 0 where it is not said
	mark   uint64
	logSeq uint64 // the mark; 0 where another producer appended the event
}

// lastEvent returns the last stored event of a run, or nil. It seeks the run in all towns only
// where it does not know the run's subject, or that subject has nothing any more.
func (s *Store) lastEvent(ctx context.Context, runID string) (*storedEvent, error) {
	if subject, known := s.subjects.Get(runID); known {
		if last, err := s.lastEventOn(ctx, subject); last != nil || err != nil {
			return last, err
		}
	}
	last, err := s.lastEventOn(ctx, wire.EventSubject(s.config.World, "*", runID))
	if last != nil {
		s.subjects.Add(runID, last.subject)
	}
	return last, err
}

// lastEventOn returns the last stored event of a subject, which may have wildcards, or nil.
func (s *Store) lastEventOn(ctx context.Context, subject string) (*storedEvent, error) {
	msg, err := s.Stream.GetLastMsgForSubject(ctx, subject)
	if err != nil && commitlog.IsGone(err) {
		s.Follower.Restart(math.MaxUint64) // it makes the stream again
		return nil, fmt.Errorf("%w: %w", ErrEventsBehind, err)
	}
	return readEvent(msg, err)
}

// Town returns the town token of the town that a run is of. It fails as Events does.
func (s *Store) Town(ctx context.Context, runID string) (string, error) {
	last, err := s.lastEvent(ctx, runID)
	if err == nil && last == nil {
		if err := s.catchUp(ctx); err != nil {
			return "", fmt.Errorf("%w: %w", ErrEventsBehind, err)
		}
		last, err = s.lastEvent(ctx, runID)
	}
	if err != nil {
		return "", err
	}
	if last == nil {
		return "", s.noLastEvent(ctx, runID)
	}
	below := strings.TrimPrefix(last.subject,
		strings.TrimSuffix(wire.EventSubject(s.config.World, "*", runID), "*."+runID))
	return strings.TrimSuffix(below, "."+runID), nil
}

// noLastEvent returns why a run has no last event: ErrUnknownRun, or ErrRunDamaged.
func (s *Store) noLastEvent(ctx context.Context, runID string) error {
	_, err := commitlog.LastOrUnreadable(ctx, s.Stream,
		wire.EventSubject(s.config.World, "*", runID))
	switch {
	case errors.Is(err, commitlog.ErrUnreadable):
		return fmt.Errorf("%w: run %s", ErrRunDamaged, runID)
	case err != nil:
		return fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
	}
	return ErrUnknownRun // or it has just come
}

// EndedAt returns the log sequence of the record in which a run ended, 0 where it goes on or
// another producer ended it. It fails as Events does.
func (s *Store) EndedAt(ctx context.Context, runID string) (uint64, error) {
	page, err := s.Events(ctx, runID, 0, 1)
	if err != nil || len(page.Events) == 0 {
		return 0, err
	}
	last, err := s.lastEvent(ctx, runID)
	if last == nil || err != nil {
		return 0, err
	}
	var ended uint64
	err = s.eachEvent(ctx, last.subject, last.streamSeq, func(event *storedEvent) bool {
		if event.EventType.EndsRun() {
			ended = event.logSeq
			return false
		}
		return true
	})
	return ended, err
}

// event returns the first stored event from sequence from on that option lets through, or nil.
func (s *Store) event(
	ctx context.Context, option jetstream.GetMsgOpt, from uint64,
) (*storedEvent, error) {
	return readEvent(s.Stream.GetMsg(ctx, from, option))
}

func readEvent(msg *jetstream.RawStreamMsg, err error) (*storedEvent, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: run events: %w", commitlog.ErrLogUnavailable, err)
	}
	stored := &storedEvent{data: msg.Data, subject: msg.Subject, streamSeq: msg.Sequence}
	if err := json.Unmarshal(msg.Data, stored); err != nil {
		return nil, fmt.Errorf("worldengine: event stream sequence %d: %w", msg.Sequence, err)
	}
	stored.mark = markOf(msg.Header.Get(wire.LogSeqHeader))
	if msg.Header.Get(wire.KindHeader) == "" {
		stored.logSeq = stored.mark
	}
	return stored, nil
}

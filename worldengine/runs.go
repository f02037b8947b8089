package worldengine

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
)

// Events are some events of a run, each the JSON of a RunEventRecord, in the order of runSeq.
type Events struct {
	Events []jsontext.Value
	// LastEventSeq is the highest runSeq that the run has, on this page or not.
	LastEventSeq int64
}

// Events returns up to limit events of a run whose runSeq is above afterSeq. A run that has just
// been answered is complete here; ErrUnknownRun says that no events of it are kept, or not the first
// ones above afterSeq, ErrRunDamaged that the last of them cannot be read, and ErrEventsBehind that the
// event stream is too far behind the log to tell.
func (e *Engine) Events(ctx context.Context, runID string, afterSeq int64, limit int) (Events, error) {
	last, err := e.lastEvent(ctx, runID)
	if err != nil {
		return Events{}, err
	}
	if last == nil || !last.terminal() {
		err = e.catchUp(ctx, e.eventFollower)
	} else {
		err = e.catchUpAppended(ctx, runID)
	}
	if err != nil {
		return Events{}, fmt.Errorf("%w: %w", ErrEventsBehind, err)
	}
	if last, err = e.lastEvent(ctx, runID); err != nil {
		return Events{}, err
	}
	if last == nil {
		return Events{}, e.noLastEvent(ctx, runID)
	}
	page := Events{Events: []jsontext.Value{}, LastEventSeq: last.RunSeq}
	// The events of a run are the messages of one subject, in the order of runSeq.
	for from := uint64(1); len(page.Events) < limit; {
		next, err := e.event(ctx, jetstream.WithGetMsgSubject(last.subject), from)
		if err != nil {
			return Events{}, err
		}
		if next == nil {
			break
		}
		from = next.streamSeq + 1
		if next.RunSeq > afterSeq {
			page.Events = append(page.Events, next.data)
		}
	}
	if err := e.checkBeginning(ctx, last.subject, afterSeq); err != nil {
		return Events{}, err
	}
	return page, nil
}

// checkBeginning returns ErrUnknownRun for a run of which an event above afterSeq was discarded with all
// that was before it, by age or by number: what is left would tell another run. It is asked after the
// events were read: the oldest go first, so that with the first one they all were there. Where the stream
// has lost nothing, a run without its first event is damage, which its readers are to see.
func (e *Engine) checkBeginning(ctx context.Context, subject string, afterSeq int64) error {
	first, err := e.event(ctx, jetstream.WithGetMsgSubject(subject), 1)
	if err != nil {
		return err
	}
	if first == nil {
		return ErrUnknownRun
	}
	if first.RunSeq-1 <= afterSeq {
		return nil
	}
	info, err := e.events.Info(ctx)
	if err != nil {
		return fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
	}
	if info.State.FirstSeq > 1 {
		return ErrUnknownRun
	}
	return nil
}

// catchUpAppended waits until what others than the engine appended to a run is in the event stream:
// they may do so after its end.
func (e *Engine) catchUpAppended(ctx context.Context, runID string) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	last, err := e.log.lastEvents(ctx, runID)
	if err != nil || last == nil {
		return err
	}
	return e.eventFollower.Wait(ctx, last.Sequence)
}

// storedEvent is a message of the event stream, with what reading a run needs of its record.
type storedEvent struct {
	RunSeq    int64               `json:"runSeq"`
	EventType runevents.EventType `json:"eventType"`

	data      jsontext.Value
	subject   string
	streamSeq uint64
}

// terminal says whether no event of the engine can follow.
func (s *storedEvent) terminal() bool {
	switch s.EventType {
	case runevents.RunCompleted, runevents.RunFailed, runevents.RunCancelled:
		return true
	}
	return false
}

// lastEvent returns the last stored event of a run, or nil.
func (e *Engine) lastEvent(ctx context.Context, runID string) (*storedEvent, error) {
	msg, err := e.events.GetLastMsgForSubject(ctx, EventSubject(e.config.World, "*", runID))
	if err != nil && isStreamGone(err) {
		e.eventFollower.Restart(math.MaxUint64) // it makes the stream again
		return nil, fmt.Errorf("%w: %w", ErrEventsBehind, err)
	}
	return readEvent(msg, err)
}

// noLastEvent returns why a run has no last event: ErrUnknownRun, or ErrRunDamaged.
func (e *Engine) noLastEvent(ctx context.Context, runID string) error {
	_, err := lastOrUnreadable(ctx, e.events, EventSubject(e.config.World, "*", runID))
	switch {
	case errors.Is(err, errUnreadable):
		return fmt.Errorf("%w: run %s", ErrRunDamaged, runID)
	case err != nil:
		return fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
	}
	return ErrUnknownRun // or it has just come
}

// event returns the first stored event from sequence from on that option lets through, or nil.
func (e *Engine) event(ctx context.Context, option jetstream.GetMsgOpt, from uint64) (*storedEvent, error) {
	return readEvent(e.events.GetMsg(ctx, from, option))
}

func readEvent(msg *jetstream.RawStreamMsg, err error) (*storedEvent, error) {
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: run events: %w", ErrLogUnavailable, err)
	}
	stored := &storedEvent{data: msg.Data, subject: msg.Subject, streamSeq: msg.Sequence}
	if err := json.Unmarshal(msg.Data, stored); err != nil {
		return nil, fmt.Errorf("worldengine: event stream sequence %d: %w", msg.Sequence, err)
	}
	return stored, nil
}

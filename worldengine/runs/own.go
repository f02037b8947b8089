package runs

import (
	"context"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
)

// Extend stores events that the engine emits between its commits, those that are not there yet, and
// with closing keeps other producers from going on with the run. It returns the run's end, or
// ErrRunCancelled. Doing it again is harmless.
func (s *Store) Extend(
	ctx context.Context, townID string, run *runevents.Run, emitted int64, closing bool,
) (commitlog.RunTail, error) {
	return s.ExtendBy(ctx, townID, run.Identity, emitted, closing,
		func(tail *commitlog.RunTail) ([]runevents.Event, error) { return tail.Without(run), nil })
}

// ExtendBy is Extend for events that depend on where the run is. fresh returns those that its end
// lacks; it is called again where the run went on meanwhile.
func (s *Store) ExtendBy(
	ctx context.Context, townID string, run runevents.Identity, emitted int64, closing bool,
	fresh func(*commitlog.RunTail) ([]runevents.Event, error),
) (commitlog.RunTail, error) {
	var tail commitlog.RunTail
	err := s.log.Retry(ctx, func() (err error) {
		if tail, err = s.log.Tail(ctx, run.RunID, emitted); err != nil {
			return err
		}
		if tail.Cancelled {
			return ErrRunCancelled
		}
		events, err := fresh(&tail)
		if err != nil || len(events) == 0 && (!closing || tail.Closed) {
			return err
		}
		batch := runevents.Run{Identity: run, FirstSeq: tail.Next, Events: events}
		// A reader of the last message alone has to see it too when the run was closed before.
		rec := commitlog.Record{Kind: commitlog.KindRun, TownID: townID, Run: &batch,
			Closing: closing || tail.Closed}
		msg, err := s.Message(&rec)
		if err != nil {
			return err
		}
		if _, err = s.log.Commit(ctx, msg, tail.Guard); err != nil {
			return err
		}
		tail, err = s.log.Tail(ctx, run.RunID, emitted)
		return err
	})
	return tail, err
}

// Reopen lets others go on with a run that was closed, because its end is not near after all. A run
// that stays closed for longer than it has to be loses nothing, so an error is only logged.
func (s *Store) Reopen(
	ctx context.Context, townID string, identity runevents.Identity, emitted int64,
) {
	tail, err := s.log.Tail(ctx, identity.RunID, emitted)
	if err == nil && !tail.Closed {
		return
	}
	var msg *nats.Msg
	if err == nil {
		open := runevents.Run{Identity: identity, FirstSeq: tail.Next}
		msg, err = s.Message(&commitlog.Record{Kind: commitlog.KindRun, TownID: townID, Run: &open})
	}
	if err == nil {
		_, err = s.log.Commit(ctx, msg, tail.Guard)
	}
	if err != nil {
		s.config.Logger.Warn("a run takes no events of others until its end", "run", identity.RunID,
			identity.Trace.LogAttr(), "error", err)
	}
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// simOperator pauses and resumes towns and the world, and cancels runs.
type simOperator struct {
	sim  *sim
	busy bool
	// deciding counts the people's decisions that are under way.
	deciding  int
	announced int // how far the engines have been told of the signals in the log
	// open are the runs without an end in the log, as far as it was read.
	open map[string]bool
	read int
	// People's answers: the runs that were cancelled, the decisions that count, and the results of
	// their submissions.
	cancelled []string
	decided   []Signal
	submitted []simSubmitted
}

// simSubmitted is the answer to a handoff that a person submitted.
type simSubmitted struct {
	handoff []byte
	answer  Answer
}

// act sends a signal to some engine; when there are no more faults, only the end of a pause.
func (o *simOperator) act() {
	o.sim.mu.Lock()
	busy := o.busy || o.deciding > 0
	o.sim.mu.Unlock()
	if busy || !o.sim.quiet && o.sim.rng.IntN(2) == 0 && o.decide() {
		return
	}
	signal, ok := o.next()
	if !ok {
		return
	}
	engine := o.sim.engines[o.sim.rng.IntN(len(o.sim.engines))]
	o.sim.trace("an operator tells engine %d: %s %s %s", engine.number, signal.Kind,
		signal.TownID, signal.RunID)
	o.busy = true
	go func() {
		ctx := context.WithValue(engine.alive, simAsker{}, "for an operator")
		_, err := engine.Signals().Handle(ctx, signal)
		var refused *SignalError
		o.sim.mu.Lock()
		defer o.sim.mu.Unlock()
		o.busy = false
		if errors.As(err, &refused) {
			o.sim.trace("the operator is refused: %s", refused.Code)
		} else if err != nil {
			o.sim.trace("the operator has an error: %s", err)
		}
		if err == nil && signal.Kind == machine.SignalCancel {
			o.cancelled = append(o.cancelled, signal.RunID)
		}
	}()
}

// next draws a signal.
func (o *simOperator) next() (Signal, bool) {
	townID := fmt.Sprint("town ", o.sim.rng.IntN(simTowns))
	paused := o.sim.pausedTown(townID)
	if o.sim.worldPause().By != nil && (o.sim.quiet || o.sim.rng.IntN(2) == 0) {
		paused, townID = true, ""
	}
	switch {
	case paused:
		return Signal{Kind: machine.SignalResume, TownID: townID}, true
	case o.sim.quiet || o.sim.strict():
		return Signal{}, false
	case o.sim.rng.IntN(3) == 0 && o.sim.unended():
		ids := make([]string, 0, len(o.open))
		for id := range o.open {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return Signal{Kind: machine.SignalCancel, RunID: ids[o.sim.rng.IntN(len(ids))],
			Force: o.sim.rng.IntN(6) == 0 || o.sim.forceful}, true
	case o.sim.rng.IntN(4) == 0:
		townID = ""
	}
	return Signal{Kind: machine.SignalPause, TownID: townID, DrainTimeout: time.Second}, true
}

// publishPauses shows the engines the log's pauses of the world, each after all have handled the one before:
// whether a town has had its turn between two signals makes a difference.
func (o *simOperator) publishPauses() {
	for ; o.announced < len(o.sim.log.messages); o.announced++ {
		m := o.sim.log.messages[o.announced]
		if m.subject != layout.PauseSubject("main") {
			continue
		}
		rec, err := m.record()
		if err != nil {
			panic(err)
		}
		for _, e := range o.sim.engines {
			e.worldPause.Set(waiting.Pause{Seq: m.seq, By: rec.Paused})
			synctest.Wait()
		}
	}
}

// simAlerts are the alerts of an engine, of which RaiseStored stores one, or loses it.
type simAlerts struct {
	*alerts.Alerts
	engine *simEngine
}

func (a simAlerts) RaiseStored(ctx context.Context, alert runevents.Alert) error {
	s := a.engine.sim
	_, err := simDo(ctx, s, a.engine, "alert of "+alert.RunID, func() (struct{}, error) {
		if _, known := s.alerted[alert.RunID]; !known && !s.noAlerts {
			s.alerted[alert.RunID] = len(s.log.messages)
		}
		return struct{}{}, nil
	})
	return err
}

func (simAlerts) All(context.Context) ([]messages.Alert, error) { return nil, nil }

// worldPause is the pause of the world in the log.
func (s *sim) worldPause() waiting.Pause {
	m := s.log.last(layout.PauseSubject("main"))
	if m == nil {
		return waiting.Pause{}
	}
	return waiting.Pause{Seq: m.seq, By: readSimRecord(m).Paused}
}

func (s *sim) pausedTown(townID string) bool {
	return readSimRecord(s.log.last(layout.LogSubject("main", wire.TownToken(townID)))).Paused != nil
}

func readSimRecord(m *simMessage) *machine.Record {
	rec, err := m.record()
	if err != nil {
		panic(err)
	}
	return rec
}

// finished reports whether each run has an end, or may go without one.
func (s *sim) finished() bool {
	if !s.unended() {
		return true
	}
	for id := range s.operator.open {
		if !s.isLeft(id) {
			return false
		}
	}
	return true
}

// unended reports whether the log has a run without an end.
func (s *sim) unended() bool {
	o := &s.operator
	if o.open == nil {
		o.open = map[string]bool{}
	}
	for ; o.read < len(s.log.messages); o.read++ {
		rec := readSimRecord(s.log.messages[o.read])
		if rec.Run == nil {
			continue
		}
		for i := range rec.Run.Events {
			switch rec.Run.Events[i].EventType {
			case runevents.RunCompleted, runevents.RunFailed, runevents.RunCancelled:
				delete(o.open, rec.Run.RunID)
			default:
				o.open[rec.Run.RunID] = true
			}
		}
	}
	return len(o.open) > 0
}

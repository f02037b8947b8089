package worldengine

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/failpoint"
	"worldengine/worldengine/machine"
	"worldengine/worldengine/wire"
)

// machineSettings returns the settings by which the machine decides.
func (e *Engine) machineSettings() machine.Settings {
	return machine.Settings{
		Rules: e.config.Rules, Apply: e.config.Apply, Policy: e.config.policy,
		ApprovalTimeout: e.config.ApprovalTimeout, Deadline: e.config.Plugin.Deadline,
	}
}

// input returns an input of now. drawn are the ids that its events had in a step before.
func (e *Engine) input(
	townID string, drawn []runevents.DrawnID, event machine.Event,
) *machine.Input {
	ids := make([]string, machine.IDs(event))
	for i := range ids {
		ids[i] = e.config.NewID()
	}
	at := e.config.Now().UTC().Truncate(time.Millisecond) // as events have it
	return &machine.Input{TownID: townID, At: at, IDs: ids, Drawn: drawn, Event: event}
}

// step has the machine decide about an input of a town, and commits the record. If the town has
// changed meanwhile, it returns commitlog.ErrLostRace, and in.Drawn has the ids for the next try.
func (e *Engine) step(
	ctx context.Context, t machine.Town, in *machine.Input,
) (machine.Output, error) {
	out, err := machine.Step(t, in, &e.settings)
	if _, ok := in.Event.(*machine.Handoff); ok {
		failpoint.At(failpoint.Judged)
	}
	if err == nil && out.Record != nil {
		err = e.commit(ctx, t, &out)
	}
	if errors.Is(err, commitlog.ErrLostRace) && out.Record.Run != nil {
		in.Drawn = out.Record.Run.Drawn()
	}
	return out, err
}

// commit stores the record of an output of a town.
func (e *Engine) commit(ctx context.Context, t machine.Town, out *machine.Output) error {
	rec, world := out.Record, e.config.World
	token := wire.TownToken(rec.TownID)
	subject, after := wire.LogSubject(world, token), &out.After
	switch {
	case out.On == machine.OfRefused && !t.State.Exists():
		subject, after = wire.RefusedSubject(world, wire.UnknownTownToken), nil
	case out.On == machine.OfRefused:
		subject, after = wire.RefusedSubject(world, token), nil
	case out.On == machine.OfSignals:
		subject, after = wire.SignalSubject(world), nil
	case out.On == machine.OfWorld:
		subject, after = wire.ControlSubject(world), nil
	}
	msg, err := commitlog.Encode(rec, subject, after)
	if err != nil {
		return err
	}
	if err := e.append(ctx, t, out, msg); err != nil {
		return err
	}
	switch rec.Kind {
	case machine.KindPut, machine.KindControl, machine.KindSignal:
	case machine.KindPending:
		failpoint.At(failpoint.Accepted)
	default:
		failpoint.At(failpoint.Committed)
	}
	return nil
}

// append appends the message of an output, with the guard that it takes.
func (e *Engine) append(
	ctx context.Context, t machine.Town, out *machine.Output, msg *nats.Msg,
) (err error) {
	switch out.On {
	case machine.OfRefused:
		if out.Free {
			return e.log.Refuse(ctx, msg, out.Record.TownID, nil)
		}
		return e.log.Refuse(ctx, msg, out.Record.TownID, &t.Seq)
	case machine.OfSignals:
		return e.log.Refuse(ctx, msg, out.Record.TownID, nil)
	}
	out.After.Seq, err = e.log.Commit(ctx, msg, t.Seq)
	return err
}

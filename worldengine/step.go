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

// commit stores the record of an output of a town, and sets out.After.Seq.
func (e *Engine) commit(ctx context.Context, t machine.Town, out *machine.Output) (err error) {
	rec, world := out.Record, e.config.World
	switch out.On {
	case machine.OfTown:
		err = e.log.CommitTown(ctx, rec, &out.After, t.Seq)
	case machine.OfWorld:
		var msg *nats.Msg
		if msg, err = commitlog.Encode(rec, wire.ControlSubject(world), nil); err == nil {
			out.After.Seq, err = e.log.Commit(ctx, msg, t.Seq)
		}
	case machine.OfSignals:
		err = e.log.RefuseRecord(ctx, rec, wire.SignalSubject(world), nil)
	case machine.OfRefused:
		token, judged := wire.TownToken(rec.TownID), &t.Seq
		if !t.State.Exists() {
			token = wire.UnknownTownToken
		}
		if out.Free {
			judged = nil
		}
		err = e.log.RefuseRecord(ctx, rec, wire.RefusedSubject(world, token), judged)
	}
	if err != nil {
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

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// maxListedTowns is how many towns each list of a report names.
const maxListedTowns = 100

// Report adds the states of towns to a report, and returns sentences about the games that are
// absent. It omits each town for which includes(token) is false. Call it after CatchUp.
func (t *Towns) Report(
	ctx context.Context, report *messages.WorldReport, includes func(token string) bool,
) (problems []string, err error) {
	tokens := func(flag index.Flag) []string {
		return slices.DeleteFunc(t.index.Towns(flag), func(token string) bool { return !includes(token) })
	}
	paused, pending := tokens(index.Paused), tokens(index.Pending)
	report.Towns = len(tokens(0))
	report.States = messages.TownStates{Paused: len(paused), Applying: len(pending),
		InDoubt: len(tokens(index.InDoubt))}
	for _, token := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(
		paused[:min(len(paused), maxListedTowns)], pending[:min(len(pending), maxListedTowns)])))) {
		if err := t.describe(ctx, report, token); err != nil {
			return nil, err
		}
	}
	if err := t.approvals.Refresh(ctx); err != nil {
		return nil, err
	}
	report.Approvals, report.States.Waiting = t.approvals.CountUndecided(func(townID string) bool {
		return includes(wire.TownToken(townID))
	})
	return t.gamesAbsent(report, includes), nil
}

// gamesAbsent adds the towns whose game is absent to a report, and returns a sentence about them: they
// may well have one cause. It omits each town for which includes(token) is false.
func (t *Towns) gamesAbsent(
	report *messages.WorldReport, includes func(token string) bool,
) (problems []string) {
	var towns []string
	first := ""
	for _, townID := range slices.Sorted(maps.Keys(t.dispatcher.Absences.Towns())) {
		absent := t.dispatcher.AbsentGame(townID)
		if absent == nil || !includes(wire.TownToken(townID)) { // the game may have come meanwhile
			continue
		}
		if towns = append(towns, townID); len(towns) <= maxListedTowns {
			report.PluginsAbsent = append(report.PluginsAbsent, *absent)
		}
		if first == "" || absent.Since < first {
			first = absent.Since
		}
	}
	report.States.NoPlugin = len(towns)
	switch len(towns) {
	case 0:
		return nil
	case 1:
		return []string{fmt.Sprintf("the town %s has had no plugin since %s", towns[0], first)}
	}
	return []string{fmt.Sprintf("%d towns have no plugin, the first since %s: %s", len(towns), first,
		phrase.List(towns, len(towns)))}
}

// describe adds a town to the lists of a report. A damaged town is left out.
func (t *Towns) describe(
	ctx context.Context, report *messages.WorldReport, token string,
) error {
	current, err := t.log.LoadToken(ctx, token)
	if errors.Is(err, records.ErrTownDamaged) || err == nil && current.Seq == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	townID := current.LastState().Snapshot.TownID
	if by := current.Paused; by != nil {
		report.TownsPaused = append(report.TownsPaused, messages.TownPause{
			TownID: townID, ActorID: by.ActorID, Reason: by.Reason, Since: by.At})
	}
	if current.Pending != nil {
		report.TownsPending = append(report.TownsPending, messages.TownPending{
			TownID: townID, RunID: current.Pending.Run.RunID})
	}
	return nil
}

// AwaitedGame returns the absence of the game that the command of a run waits for; nil if the
// command waits for none.
func (t *Towns) AwaitedGame(run *runevents.Snapshot) *messages.AbsentPlugin {
	if run.Status.Terminal() {
		return nil
	}
	of := t.dispatcher.AbsentGame(machine.ReadStarted(run).TownID)
	if of == nil || of.RunID != run.RunID {
		return nil
	}
	return of
}

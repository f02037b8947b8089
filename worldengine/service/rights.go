package service

import (
	"context"
	"errors"
	"slices"

	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/runs"
)

// mayReadRun refuses to read a run of a town that the rights do not cover. A run that there is not
// is refused alike, so that a refusal does not disclose which there are.
func (s *Service) mayReadRun(ctx context.Context, rights access.Rights, runID string) error {
	if _, bound := rights.Readable(); !bound {
		return nil
	}
	token, err := s.engine.Runs().Town(ctx, runID)
	if err != nil {
		return undisclosed(rights, err)
	}
	return rights.ReadToken(token)
}

// undisclosed returns access.ErrUnreadable instead of an error that discloses whether a run or a
// result exists, where the rights do not cover every town.
func undisclosed(rights access.Rights, err error) error {
	if _, bound := rights.Readable(); !bound {
		return err
	}
	for _, disclosing := range []error{
		runs.ErrUnknownRun, runs.ErrRunDamaged, worldengine.ErrUnknownResult,
	} {
		if errors.Is(err, disclosing) {
			return access.ErrUnreadable
		}
	}
	return err
}

// readableRuns is Runs.List of the towns that the rights cover: of townID, or of all of them where
// that is "".
func (s *Service) readableRuns(
	ctx context.Context, rights access.Rights, filter runs.RunFilter, townID string,
	after uint64, limit int,
) (runs.Runs, error) {
	towns, bound := rights.Readable()
	filter.Towns = slices.Compact(slices.Sorted(slices.Values(towns)))
	if townID != "" {
		if err := rights.Read(townID); err != nil {
			return runs.Runs{}, err
		}
		filter.Towns = []string{townID}
	}
	if bound && len(filter.Towns) == 0 {
		mark, err := s.engine.Runs().Mark(ctx)
		return runs.Runs{Runs: []runs.Row{}, Mark: mark}, err
	}
	return s.engine.Runs().List(ctx, filter, after, limit)
}

package logwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// reportAll reports the damage that findShortTowns found, and the chains with a hole.
func (w *Watcher) reportAll(short []shortTown) {
	for i := range short {
		w.ReportDamage(short[i].token, 0, fmt.Sprintf("it keeps %d of the town's records, and must keep %d",
			short[i].stored, short[i].needed))
	}
	for _, c := range w.Index.BrokenChains() {
		_ = w.ReportHole(&c)
	}
}

// ReportHole reports a town whose chain has a hole, and returns the error for its clients.
func (w *Watcher) ReportHole(c *index.Chain) error {
	why := fmt.Sprintf("log sequence %d names %d as the record before it, and that is missing", c.Hole,
		c.Missing)
	w.ReportDamage(c.Town, 0, why)
	return fmt.Errorf("%w: town %s: %s", records.ErrTownDamaged, c.Town, why)
}

// ReportDamage alerts operators once, and has the town in Damaged until the town turns out to be whole.
func (w *Watcher) ReportDamage(token string, record uint64, why string) {
	w.reported.Store(token, record)
	townID, origin := townName(token), "The log"
	if node := w.Log.Leader(); node != "" {
		origin += ", as the node " + node + " has it,"
	}
	alert := alerts.TownDamaged.Alert(alerts.About{TownID: townID}, "{log}", origin, "{why}", why)
	c := w.Index.Chain(token)
	alert.TownID, alert.LogSeq = townID, cmp.Or(record, c.Hole, c.Newest, 1)
	w.Alerts.RaiseOnce(alert)
}

// townName returns the id of a town or, if its token cannot be decoded, the token.
func townName(token string) string {
	if townID, err := percent.Decode(token); err == nil {
		return townID
	}
	return token
}

// DamagedTowns returns the names of the towns that answer TOWN_DAMAGED, at least for some keys: the log lacks one of
// their records, or their last one cannot be read. It omits each town for which includes(token) is false.
func (w *Watcher) DamagedTowns(ctx context.Context, includes func(token string) bool) (names []string, err error) {
	for _, token := range w.Index.Towns(0) {
		if !includes(token) {
			continue
		}
		damaged, err := w.isDamaged(ctx, token)
		if err != nil {
			return nil, err
		}
		if damaged {
			names = append(names, townName(token))
		}
	}
	return names, nil
}

// isDamaged reports whether a town answers TOWN_DAMAGED, at least for some keys.
func (w *Watcher) isDamaged(ctx context.Context, token string) (bool, error) {
	_, err := w.Log.LoadToken(ctx, token)
	if errors.Is(err, records.ErrTownDamaged) {
		return true, nil
	}
	c := w.Index.Chain(token)
	if err != nil || !c.Whole(w.Index.Limits()) {
		return err == nil, err
	}
	found, reported := w.reported.Load(token)
	if !reported {
		return false, nil
	}
	still := false
	if record := found.(uint64); record > 0 && w.Index.MustKeep(record) {
		msg, err := w.Log.At(ctx, record)
		if err != nil {
			return false, err
		}
		still = msg == nil
	} else if record == 0 {
		subject := w.townSubject(token)
		counts, err := commitlog.SubjectsOf(ctx, w.Log.Stream, subject)
		if err != nil {
			return false, err
		}
		still = counts[subject] < c.Needed(w.Index.Limits())
	}
	if !still {
		w.reported.Delete(token)
	}
	return still, nil
}

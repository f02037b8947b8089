package approvals

import (
	"context"
	"errors"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/messages"
)

// Counter counts the proposals that wait for their decision. It reads a town again only if the town
// has a newer record. It is safe for concurrent use. Reader must be set.
type Counter struct {
	Reader *Reader

	mu    sync.Mutex
	towns map[string]counted
}

// counted has the proposals that waited in a town when its record was read.
type counted struct {
	seq    uint64
	townID string
	waits  []span
}

type span struct{ from, until time.Time }

// Refresh reads the towns that have newer records. It leaves out a damaged town.
func (c *Counter) Refresh(ctx context.Context) error {
	newest, towns := c.Reader.Index.Newest(index.Asked), map[string]counted{}
	c.mu.Lock()
	before := c.towns
	c.mu.Unlock()
	for token, seq := range newest {
		if known := before[token]; known.seq >= seq {
			towns[token] = known
			continue
		}
		town, err := c.Reader.load(ctx, token)
		if err != nil && !errors.Is(err, commitlog.ErrTownDamaged) {
			return err
		}
		counts := counted{seq: seq}
		for i := range town.Approvals {
			a := &town.Approvals[i]
			if c.Reader.waits(&town, a) == approval.Waiting {
				counts.townID = town.State.Snapshot.TownID
				counts.waits = append(counts.waits, span{a.At, a.Expires})
			}
		}
		towns[token] = counts
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.towns = towns
	return nil
}

// Towns returns how many proposals wait in each town, as of the last Refresh.
func (c *Counter) Towns() map[string]int {
	now, towns := c.Reader.Now(), map[string]int{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, town := range c.towns {
		for _, wait := range town.waits {
			if now.Before(wait.until) {
				towns[town.townID]++
			}
		}
	}
	return towns
}

// Waiting counts the proposals that wait in the towns for which of is true, as of the last Refresh,
// and those towns.
func (c *Counter) Waiting(of func(townID string) bool) (w messages.WaitingApprovals, towns int) {
	now := c.Reader.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, town := range c.towns {
		count := w.Count
		for _, wait := range town.waits {
			if !of(town.townID) || !now.Before(wait.until) {
				continue
			}
			w.Count++
			since := runevents.Timestamp(wait.from)
			if w.Since == "" || since < w.Since || since == w.Since && town.townID < w.TownID {
				w.Since, w.TownID = since, town.townID
			}
		}
		if w.Count > count {
			towns++
		}
	}
	return w, towns
}

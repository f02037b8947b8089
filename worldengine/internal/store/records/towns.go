package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/messages"
)

// maxCacheBytes bounds the memory of the cache, counted as twice the canonical JSON of the states,
// the handoffs that wait for approval, and a little for each town. Towns beyond the bound are read
// from the log.
const maxCacheBytes = 256 << 20

// TownCache is a cache of towns over the log. A cached town is stale if another instance has changed
// it; the guard of the next commit detects that. TownCache is safe for concurrent use.
type TownCache struct {
	log *Log

	mu    sync.Mutex
	towns map[string]machine.Town
	bytes int
}

// NewTownCache returns an empty cache over log.
func NewTownCache(log *Log) *TownCache {
	return &TownCache{log: log, towns: map[string]machine.Town{}}
}

// Get returns the town from memory, or from the log; its errors are Log.Load's. It does not cache the
// zero Town of a town that does not exist.
func (c *TownCache) Get(ctx context.Context, townID string) (machine.Town, error) {
	c.mu.Lock()
	town, ok := c.towns[townID]
	c.mu.Unlock()
	if ok {
		return town, nil
	}
	town, err := c.log.Load(ctx, townID)
	if err != nil || town.Seq == 0 {
		return town, err
	}
	c.Set(townID, town)
	return town, nil
}

// Set caches a town as this writer has read or committed it, unless a later state is known.
func (c *TownCache) Set(townID string, town machine.Town) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.towns[townID].Seq > town.Seq {
		return
	}
	c.remove(townID)
	c.towns[townID] = town
	c.bytes += cacheCost(townID, town)
	for other := range c.towns {
		if c.bytes <= maxCacheBytes {
			return
		}
		c.remove(other)
	}
}

// Forget makes the next Get read the town from the log.
func (c *TownCache) Forget(townID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(townID)
}

// Clear forgets all towns.
func (c *TownCache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.towns)
	c.bytes = 0
}

// remove is Forget for a caller that holds the lock.
func (c *TownCache) remove(townID string) {
	if town, ok := c.towns[townID]; ok {
		c.bytes -= cacheCost(townID, town)
		delete(c.towns, townID)
	}
}

func cacheCost(townID string, town machine.Town) int {
	size := 512 + len(townID) + 2*len(town.State.Canonical)
	for i := range town.Approvals {
		size += 512 + len(town.Approvals[i].Handoff)
	}
	return size
}

// TownHeader is a town as the headers of its last message describe it.
type TownHeader struct {
	messages.TownSummary
	Token   string
	Pending bool // a command is being applied
}

// Towns returns the towns with the tokens, or all towns if tokens is nil, ordered by the bytes of
// their ids. It omits and logs a town whose message is damaged.
func (l *Log) Towns(
	ctx context.Context, tokens []string, logger *slog.Logger,
) (all []TownHeader, err error) {
	subjects := []string{layout.LogSubject(l.World, "*")}
	if tokens != nil {
		subjects = nil
	}
	for _, token := range tokens {
		subjects = append(subjects, layout.LogSubject(l.World, token))
	}
	err = commitlog.ScanLast(ctx, l.Stream, subjects, func(msg *jetstream.RawStreamMsg) error {
		if msg.Header.Get(layout.RemovedHeader) != "" {
			return nil
		}
		listed, err := l.readTownHeader(ctx, msg)
		if errors.Is(err, commitlog.ErrLogUnavailable) {
			return err
		}
		if err != nil { // one damaged town must not hide the others
			logger.Error("a town cannot be listed", "subject", msg.Subject, "error", err)
			return nil
		}
		all = append(all, listed)
		return nil
	})
	slices.SortFunc(all, func(a, b TownHeader) int {
		return cmp.Or(strings.Compare(a.TownID, b.TownID), cmp.Compare(b.Revision, a.Revision))
	})
	return slices.CompactFunc(all, func(a, b TownHeader) bool { return a.TownID == b.TownID }), err
}

// readTownHeader returns a town by its last message, which was read without its body.
func (l *Log) readTownHeader(ctx context.Context, msg *jetstream.RawStreamMsg) (TownHeader, error) {
	token, header := layout.LoggedTown(msg.Subject), msg.Header
	townID, err := percent.Decode(header.Get(layout.TownHeader))
	if townID == "" && err == nil { // the id is too long for a header
		var rec *machine.Record
		if rec, _, err = l.RecordAt(ctx, msg.Sequence); err == nil {
			townID = rec.TownID
		}
	}
	if err != nil {
		return TownHeader{}, fmt.Errorf("log sequence %d: %w", msg.Sequence, err)
	}
	epoch, err := strconv.ParseInt(header.Get(layout.EpochHeader), 10, 64)
	if err != nil {
		return TownHeader{}, fmt.Errorf("log sequence %d: header %s: %w", msg.Sequence,
			layout.EpochHeader, err)
	}
	return TownHeader{TownSummary: messages.TownSummary{
		TownID: townID, SnapshotHash: header.Get(layout.HashHeader), DecisionEpoch: epoch,
		Revision: msg.Sequence, Apply: header.Get(layout.ApplyHeader),
		Paused: header.Get(layout.PausedHeader) == "true",
	}, Token: token, Pending: header.Get(layout.PendingHeader) == "true"}, nil
}

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

// TownCache is a cache of current entries over the log. An entry is stale if another instance has
// changed the town; the guard of the next commit detects that. It is safe for concurrent use.
type TownCache struct {
	log *Log

	mu      sync.Mutex
	entries map[string]machine.Town
	bytes   int
}

// NewTownCache returns an empty cache over log.
func NewTownCache(log *Log) *TownCache {
	return &TownCache{log: log, entries: map[string]machine.Town{}}
}

// Get returns the town's entry from memory, or from the log; its errors are Log.Load's. The zero
// entry of a town that does not exist is not kept.
func (t *TownCache) Get(ctx context.Context, townID string) (machine.Town, error) {
	t.mu.Lock()
	e, ok := t.entries[townID]
	t.mu.Unlock()
	if ok {
		return e, nil
	}
	e, err := t.log.Load(ctx, townID)
	if err != nil || e.Seq == 0 {
		return e, err
	}
	t.Set(townID, e)
	return e, nil
}

// Set keeps the entry that this writer has read or committed, unless a later one is known.
func (t *TownCache) Set(townID string, e machine.Town) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries[townID].Seq > e.Seq {
		return
	}
	t.remove(townID)
	t.entries[townID] = e
	t.bytes += cacheCost(townID, e)
	for other := range t.entries {
		if t.bytes <= maxCacheBytes {
			return
		}
		t.remove(other)
	}
}

// Forget makes the next Get read the town from the log.
func (t *TownCache) Forget(townID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(townID)
}

// Clear forgets all towns.
func (t *TownCache) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.entries)
	t.bytes = 0
}

// remove is Forget for a caller that holds the lock.
func (t *TownCache) remove(townID string) {
	if e, ok := t.entries[townID]; ok {
		t.bytes -= cacheCost(townID, e)
		delete(t.entries, townID)
	}
}

func cacheCost(townID string, e machine.Town) int {
	size := 512 + len(townID) + 2*len(e.State.Canonical)
	for i := range e.Approvals {
		size += 512 + len(e.Approvals[i].Handoff)
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

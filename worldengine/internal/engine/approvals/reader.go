// Package approvals reads the proposals that wait for a person's approval, of all towns of a world,
// and those that wait no longer.
package approvals

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

const (
	// timeout bounds a look at the towns of a world.
	timeout = 10 * time.Second
	// maxValue bounds a value of an expected change, in bytes of JSON, maxChanges the changes of a
	// row, and maxChangesBytes all of them.
	maxValue        = 2 << 10
	maxChanges      = 64
	maxChangesBytes = 64 << 10
)

// Reader reads proposals, and counts those that wait. The exported members must be set. It is safe for
// concurrent use.
type Reader struct {
	Log   *records.Log
	Index *index.Index
	// Rules predict the changes of a proposal; Default is the policy of towns without one.
	Rules   *town.Rules
	Default approval.Policy
	Now     func() time.Time
	Logger  *slog.Logger

	mu    sync.Mutex
	towns map[string]townRequests // by token, as of the last Refresh
}

// townRequests has the open proposals of a town in its record at a sequence.
type townRequests struct {
	seq  uint64
	open []openRequest
}

// openRequest is an open proposal, and its place in the order of all.
type openRequest struct {
	order, townID, handoffID, handoffHash string
	undecided                             bool // for its decision
	requestedAt, expires                  time.Time
}

// Refresh reads each town again that has a newer record. It leaves out a damaged town.
func (r *Reader) Refresh(ctx context.Context) error {
	r.mu.Lock()
	before := r.towns
	r.mu.Unlock()
	towns := map[string]townRequests{}
	for token, seq := range r.Index.NewestByTown(index.ApprovalWaiting) {
		known := before[token]
		if known.seq < seq {
			town, err := r.Log.LoadToken(ctx, token)
			if errors.Is(err, records.ErrTownDamaged) {
				r.Logger.Error("the proposals that wait in a town cannot be read", "town", token,
					"error", err)
			} else if err != nil {
				return err
			}
			known = townRequests{seq, r.open(&town)}
		}
		towns[token] = known
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.towns = towns
	return nil
}

// open returns the open proposals of a town that still need an approval by the town's policy.
func (r *Reader) open(town *machine.Town) (open []openRequest) {
	for i := range town.Approvals {
		a := &town.Approvals[i]
		status := a.Status(town.State.Hash, r.Now())
		var h handoff.Handoff
		if !status.IsOpen() || json.Unmarshal(a.Handoff, &h) != nil ||
			!cmp.Or(town.Policy, &r.Default).Requires(h.Proposal.Type) {
			continue
		}
		townID := town.State.Snapshot.TownID
		open = append(open, openRequest{
			order: strings.Join([]string{runevents.Timestamp(a.At), a.HandoffID, a.HandoffHash,
				townID}, " "),
			townID: townID, handoffID: a.HandoffID, handoffHash: a.HandoffHash,
			undecided: status == approval.Waiting, requestedAt: a.At, expires: a.Expires,
		})
	}
	return open
}

// all returns the open proposals of all towns, as of the last Refresh.
func (r *Reader) all() (open []openRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, town := range r.towns {
		open = append(open, town.open...)
	}
	now := r.Now()
	return slices.DeleteFunc(open, func(p openRequest) bool { return !now.Before(p.expires) })
}

// Towns returns the number of proposals that wait for their decision in each town, as of the last
// Refresh.
func (r *Reader) Towns() map[string]int {
	towns := map[string]int{}
	for _, p := range r.all() {
		if p.undecided {
			towns[p.townID]++
		}
	}
	return towns
}

// CountUndecided counts the proposals that wait for their decision in the towns for which includes is true, and
// those towns, as of the last Refresh.
func (r *Reader) CountUndecided(includes func(townID string) bool) (w messages.WaitingApprovals, towns int) {
	counted := map[string]bool{}
	for _, p := range r.all() {
		if !p.undecided || !includes(p.townID) {
			continue
		}
		w.Count++
		counted[p.townID] = true
		since := runevents.Timestamp(p.requestedAt)
		if w.Since == "" || since < w.Since || since == w.Since && p.townID < w.TownID {
			w.Since, w.TownID = since, p.townID
		}
	}
	return w, len(counted)
}

// List returns up to limit rows after a place, in the order in which they were asked for: of one
// town, or with "" of all towns for which includes is true. It returns fewer if their JSON takes more
// than the given bytes, but at least one: a row has at most some 140 KB. It returns ErrTownDamaged
// if the one town cannot be read.
func (r *Reader) List(
	ctx context.Context, townID, after string, limit, bytes int, includes func(townID string) bool,
) (page messages.Approvals, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	places, err := r.openRequests(ctx, townID, includes)
	if err != nil {
		return messages.Approvals{}, err
	}
	places = slices.DeleteFunc(places, func(p openRequest) bool { return p.order <= after })
	slices.SortFunc(places, func(a, b openRequest) int { return strings.Compare(a.order, b.order) })
	read := pageReader{r, map[string]*pageTown{}}
	for i := range places {
		if i == limit {
			return page, nil
		}
		row, err := read.openRow(ctx, &places[i])
		if err != nil {
			return messages.Approvals{}, err
		}
		data, err := json.Marshal(row)
		if err != nil {
			return messages.Approvals{}, err
		}
		if bytes -= len(data); bytes < 0 && i > 0 {
			return page, nil
		}
		if page.Next = places[i].order; row != nil {
			page.Approvals = append(page.Approvals, row)
		}
	}
	page.Next = ""
	return page, nil
}

// openRequests returns the open proposals of one town, or with "" of all towns for which includes is true.
func (r *Reader) openRequests(
	ctx context.Context, townID string, includes func(townID string) bool,
) ([]openRequest, error) {
	if townID != "" {
		town, err := r.Log.Load(ctx, townID)
		return r.open(&town), err
	}
	_, err := r.Index.CatchUp(ctx)
	if err == nil {
		err = r.Refresh(ctx)
	}
	return slices.DeleteFunc(r.all(), func(p openRequest) bool { return !includes(p.townID) }), err
}

// pageReader makes the rows of a page. It reads each town of the page once.
type pageReader struct {
	*Reader
	towns map[string]*pageTown // by token; nil for a damaged town
}

// pageTown is a town of a page. complete sets tree and runs, for open proposals.
type pageTown struct {
	machine.Town
	tree any               // the state, as schemas.Decode returns it
	runs map[string]string // the runs that asked, by the hash of the handoff
}

// town returns a town, nil if it is damaged.
func (r *pageReader) town(ctx context.Context, token string) (*pageTown, error) {
	if town, found := r.towns[token]; found {
		return town, nil
	}
	var known *pageTown
	current, err := r.Log.LoadToken(ctx, token)
	if err == nil {
		known = &pageTown{Town: current}
	} else if errors.Is(err, records.ErrTownDamaged) {
		err = nil
	}
	r.towns[token] = known
	return known, err
}

// openRow makes the row of an open proposal, nil if it waits no longer or cannot be read.
func (r *pageReader) openRow(ctx context.Context, p *openRequest) (*messages.Approval, error) {
	token := wire.TownToken(p.townID)
	town, err := r.town(ctx, token)
	if town != nil && town.runs == nil {
		err = r.complete(ctx, town, token)
	}
	if town == nil || err != nil {
		return nil, err
	}
	a := town.Approvals.Find(p.handoffID, p.handoffHash)
	if a == nil || !a.Status(town.State.Hash, r.Now()).IsOpen() {
		return nil, nil
	}
	row, h, err := newRow(p.townID, a)
	if err == nil {
		row.Status, row.RunID = string(a.Status(town.State.Hash, r.Now())), town.runs[a.HandoffHash]
		setDecision(row, a.Decision)
		err = r.addExpectedChanges(row, h, town)
	}
	if err != nil {
		r.Logger.Error("a proposal that waits cannot be read", "town", p.townID,
			"handoff", a.HandoffID, "error", err)
		return nil, nil
	}
	return row, nil
}

// complete adds the tree of a town, and the runs that asked about its open proposals.
func (r *pageReader) complete(ctx context.Context, town *pageTown, token string) (err error) {
	canonical := town.State.Canonical
	town.tree, err = schemas.Decode(canonical, schemas.Limits{Bytes: len(canonical) + 1})
	if err != nil {
		return err
	}
	town.runs = map[string]string{}
	missing := map[string]bool{} // the town may have asked later, and forgotten that
	for i := range town.Approvals {
		if a := &town.Approvals[i]; a.Status(town.State.Hash, r.Now()).IsOpen() {
			missing[a.HandoffHash] = true
		}
	}
	rows := r.Index.Approvals(token, 0, maxTownRows)
	return r.visit(ctx, rows, machine.KindAsked, func(rec *machine.Record) bool {
		if n := len(rec.Approvals); n > 0 && missing[rec.Approvals[n-1].HandoffHash] {
			hash := rec.Approvals[n-1].HandoffHash
			town.runs[hash] = rec.Run.RunID
			delete(missing, hash)
		}
		return len(missing) > 0
	})
}

// newRow returns the row of an entry, without its status, run and decision, and the entry's handoff.
func newRow(townID string, a *approval.Request) (*messages.Approval, *handoff.Handoff, error) {
	h, err := handoff.Parse(a.Handoff, schemas.Limits{Bytes: len(a.Handoff) + 1})
	if err != nil {
		return nil, nil, err
	}
	var asked struct {
		Proposal jsontext.Value `json:"proposal"`
	}
	err = json.Unmarshal(a.Handoff, &asked)
	return &messages.Approval{
		TownID: townID, HandoffID: a.HandoffID, HandoffHash: a.HandoffHash, Command: h.Command,
		Proposal: asked.Proposal, At: runevents.Timestamp(a.At),
		Expires: runevents.Timestamp(a.Expires), Expected: []messages.ExpectedChange{},
	}, h, err
}

// setDecision adds a decision; nil for none.
func setDecision(row *messages.Approval, d *approval.Decision) {
	if d != nil {
		row.DecidedBy, row.DecidedAt, row.Reason = d.ActorID, runevents.Timestamp(d.At), d.Reason
	}
}

// addExpectedChanges adds the changes that the rules expect of a handoff.
func (r *pageReader) addExpectedChanges(row *messages.Approval, h *handoff.Handoff, town *pageTown) error {
	after, reason := r.Rules.Apply(town.State.Snapshot, &h.Proposal)
	if row.ExpectedFailure = reason; reason != "" {
		return nil
	}
	found, more, err := changes(town.tree, after.Canonical)
	row.Expected, row.ExpectedLeftOut = append(row.Expected, found...), more
	return err
}

// changes returns the differences between a JSON tree and a JSON text, in the order of the paths'
// members, and how many more there are. A list that gets longer or shorter differs as a whole. A
// value larger than maxValue is left out.
func changes(before any, after []byte) (found []messages.ExpectedChange, more int, err error) {
	to, err := schemas.Decode(after, schemas.Limits{Bytes: len(after) + 1})
	if err != nil {
		return nil, 0, err
	}
	room := maxChangesBytes
	for _, d := range handoff.Differences(before, to, true) {
		c := messages.ExpectedChange{Path: d.Path}
		c.From, c.FromBytes = truncated(d.Before)
		c.To, c.ToBytes = truncated(d.After)
		room -= len(c.Path) + len(c.From) + len(c.To)
		if len(found) == maxChanges || room < 0 {
			more++
			continue
		}
		found = append(found, c)
	}
	return found, more, nil
}

// truncated returns a value, or the size of one that is too large.
func truncated(value jsontext.Value) (jsontext.Value, int) {
	if len(value) > maxValue {
		return nil, len(value)
	}
	return value, 0
}

// Package approvals reads the proposals that wait for a person's approval, of all towns of a world.
package approvals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/index"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// timeout bounds a look at the towns of a world.
const timeout = 10 * time.Second

// Reader reads what waits. Every member must be set.
type Reader struct {
	Log *commitlog.Log
	// Asked returns the tokens of the towns in which proposals may wait, sorted.
	Asked func(ctx context.Context) ([]string, error)
	// Past returns the newest rows before a sequence, or with 0 of all, of the records in which a
	// town, or with "" any, began to wait for a decision or got one; the newest first.
	Past func(townToken string, before uint64, limit int) []index.Row
	// Accepted returns the record that consumed a key in a town.
	Accepted func(townToken, key string) (seq uint64, found bool)
	// Rules predict the changes of a proposal; Default is the policy of towns without one.
	Rules   *town.Rules
	Default approval.Policy
	Now     func() time.Time
	Logger  *slog.Logger
}

// Row is a proposal that waits for its decision, or is approved and waits for its handoff.
type Row = messages.Approval

// place is an entry that waits, and the place of its row in the order of all.
type place struct {
	order, townID, handoffID, handoffHash string
	size                                  int // of its row, or of its handoff before there is one
}

// Page is a part of the list of all that waits.
type Page struct {
	Rows []*Row
	// Next is the place behind which the list goes on; "" at its end.
	Next string
}

// List returns up to limit rows behind a place, those that were asked about first, first: of one
// town, or with "" of all towns for which of is true. It returns fewer if their JSON has more than
// so many bytes, and one however large it is: a row has at most some 140 KB. It returns
// ErrTownDamaged if the one town cannot be read.
func (r *Reader) List(
	ctx context.Context, townID, after string, limit, bytes int, of func(townID string) bool,
) (page Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var places []place
	if townID != "" {
		_, known, err := r.load(ctx, wire.TownToken(townID))
		if err != nil {
			return Page{}, err
		}
		places = first(r.placesOf(townID, known, after), limit+1)
	} else if err = r.visit(ctx, func(townID string, known *known) {
		if of(townID) {
			places = append(places, r.placesOf(townID, known, after)...)
			if len(places) > 4*limit {
				places = first(places, limit+1)
			}
		}
	}); err != nil {
		return Page{}, err
	}
	all := first(places, limit+1)
	places = fit(all[:min(limit, len(all))], bytes)
	if page.Rows, places, err = r.rows(ctx, places, bytes); err != nil {
		return Page{}, err
	}
	if len(places) < len(all) {
		page.Next = places[len(places)-1].order
	}
	return page, nil
}

// fit returns the first of the places whose rows have no more than so many bytes together, as far
// as their sizes are known; one, however large it is.
func fit(places []place, bytes int) []place {
	for i := range places {
		if bytes -= places[i].size; i > 0 && bytes < 0 {
			return places[:i]
		}
	}
	return places
}

// first returns the first of the places, in their order.
func first(places []place, most int) []place {
	slices.SortFunc(places, func(a, b place) int { return strings.Compare(a.order, b.order) })
	return places[:min(most, len(places))]
}

// placesOf returns the places of what waits in a town, behind a place.
func (r *Reader) placesOf(townID string, known *known, after string) (places []place) {
	for i := range known.approvals {
		a := &known.approvals[i]
		if !a.Status(known.hash, r.Now()).IsOpen() {
			continue
		}
		p := place{townID: townID, handoffID: a.HandoffID, handoffHash: a.HandoffHash,
			size: len(a.Handoff)}
		p.order = strings.Join([]string{
			runevents.Timestamp(a.At), p.handoffID, p.handoffHash, townID}, " ")
		if p.order <= after {
			continue
		}
		if r.requires(known, a) {
			places = append(places, p)
		}
	}
	return places
}

// requires reports whether an open entry takes an approval by the policy of its town.
func (r *Reader) requires(known *known, a *approval.Asked) bool {
	var said struct {
		Proposal struct {
			Type handoff.ProposalType `json:"type"`
		} `json:"proposal"`
	}
	err := json.Unmarshal(a.Handoff, &said)
	return err == nil && cmp.Or(known.policy, &r.Default).Requires(said.Proposal.Type)
}

// known is the approval part of a town's record. Its state is not read.
type known struct {
	hash      string // of the state
	policy    *approval.Policy
	approvals approval.List
}

// load reads the approval part of the last record of a town, by its token: nothing for a town that
// does not exist.
func (r *Reader) load(ctx context.Context, token string) (townID string, k *known, err error) {
	msg, err := r.Log.LastOfToken(ctx, token)
	if msg == nil || err != nil {
		return "", new(known), err
	}
	rec, err := commitlog.ReadRecord(msg.Data)
	if err != nil {
		return "", nil, fmt.Errorf("%w: town %s, log sequence %d: %w", commitlog.ErrTownDamaged,
			token, msg.Sequence, err)
	}
	return rec.TownID, &known{msg.Header.Get(wire.HashHeader), rec.Policy, rec.Approvals}, nil
}

// visit visits the towns in which proposals may wait, in the order of their tokens. It leaves out a
// damaged town.
func (r *Reader) visit(ctx context.Context, do func(townID string, known *known)) error {
	tokens, err := r.Asked(ctx)
	if err != nil {
		return err
	}
	for _, token := range tokens {
		townID, known, err := r.load(ctx, token)
		if errors.Is(err, commitlog.ErrTownDamaged) {
			r.Logger.Error("the proposals that wait in a town cannot be read", "town", token,
				"error", err)
			continue
		}
		if err != nil {
			return err
		}
		do(townID, known)
	}
	return nil
}

// rows makes the rows of the first places whose JSON has no more than so many bytes, and returns
// those places. It loads each town once, and holds one at a time.
func (r *Reader) rows(
	ctx context.Context, places []place, bytes int,
) ([]*Row, []place, error) {
	rows := make([]*Row, len(places))
	for i := 0; i < len(places); i++ {
		if rows[i] != nil {
			continue
		}
		townID := places[i].townID
		current, err := r.Log.Load(ctx, townID)
		if errors.Is(err, commitlog.ErrTownDamaged) {
			r.Logger.Error("the proposals that wait in a town cannot be listed", "town", townID,
				"error", err)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		before, err := schemas.Decode(current.State.Canonical,
			schemas.Limits{Bytes: len(current.State.Canonical) + 1})
		if err != nil {
			return nil, nil, err
		}
		hashes := map[string]bool{}
		for j := i; j < len(places); j++ {
			if places[j].townID == townID {
				hashes[places[j].handoffHash] = true
			}
		}
		runs, err := r.askedRuns(ctx, wire.TownToken(townID), hashes)
		if err != nil {
			return nil, nil, err
		}
		for j := i; j < len(places); j++ {
			if places[j].townID != townID {
				continue
			}
			if rows[j] = r.row(&places[j], current, before); rows[j] != nil {
				rows[j].RunID = runs[rows[j].HandoffHash]
			}
			data, err := json.Marshal(rows[j])
			if err != nil {
				return nil, nil, err
			}
			places[j].size = len(data)
			places = fit(places, bytes)
		}
	}
	rows = slices.DeleteFunc(rows[:len(places)], func(row *Row) bool { return row == nil })
	return rows, places, nil
}

// row makes the row of a place, nil if the entry waits no longer. before is the tree of the
// town's state.
func (r *Reader) row(p *place, current commitlog.Entry, before any) *Row {
	q := approval.Question{HandoffID: p.handoffID, HandoffHash: p.handoffHash}
	i, refused := current.Approvals.Select(q, current.State.Hash, r.Now())
	if refused != nil {
		return nil
	}
	a := &current.Approvals[i]
	status := a.Status(current.State.Hash, r.Now())
	if !status.IsOpen() {
		return nil
	}
	row := &Row{
		TownID: p.townID, HandoffID: a.HandoffID, HandoffHash: p.handoffHash, Status: string(status),
		At: runevents.Timestamp(a.At), Expires: runevents.Timestamp(a.Expires),
		Expected: []Change{},
	}
	if d := a.Decision; d != nil {
		row.DecidedBy, row.DecidedAt, row.Reason = d.ActorID, runevents.Timestamp(d.At), d.Reason
	}
	if err := r.expect(row, a, current.State, before); err != nil {
		r.Logger.Error("a proposal that waits cannot be read", "town", p.townID,
			"handoff", a.HandoffID, "error", err)
		return nil
	}
	return row
}

// propose adds the proposal of a handoff, and returns the handoff.
func (r *Reader) propose(row *Row, encoded jsontext.Value) (*handoff.Handoff, error) {
	h, err := handoff.Parse(encoded, schemas.Limits{Bytes: len(encoded) + 1})
	if err != nil {
		return nil, err
	}
	var said struct {
		Proposal jsontext.Value `json:"proposal"`
	}
	if err := json.Unmarshal(encoded, &said); err != nil {
		return nil, err
	}
	row.Command, row.Proposal = h.Command, said.Proposal
	return h, nil
}

// expect adds the proposal, and the changes that the rules expect of it.
func (r *Reader) expect(row *Row, a *approval.Asked, state town.State, before any) error {
	h, err := r.propose(row, a.Handoff)
	if err != nil {
		return err
	}
	after, reason := r.Rules.Apply(state.Snapshot, &h.Proposal)
	if row.ExpectedFailure = reason; reason != "" {
		return nil
	}
	changes, more, err := Changes(before, after.Canonical)
	row.Expected, row.ExpectedLeftOut = append(row.Expected, changes...), more
	return err
}

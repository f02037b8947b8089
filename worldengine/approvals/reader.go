// Package approvals reads the proposals that wait for a person's approval, of all towns of a world.
package approvals

import (
	"cmp"
	"context"
	"errors"
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
	"worldengine/worldengine/town"
)

// Index is where the towns stand in which proposals may wait.
type Index interface {
	Asked(ctx context.Context, visit func(townID string, entry *commitlog.Message) error) error
	Remove(ctx context.Context, seq uint64)
}

// Reader reads what waits. Every member must be set.
type Reader struct {
	Log   *commitlog.Log
	Index Index
	// Rules are what a proposal is expected to do, and Default is the policy of towns without one.
	Rules   *town.Rules
	Default approval.Policy
	Now     func() time.Time
	Logger  *slog.Logger
}

// Row is a proposal that waits for its decision, or is approved and waits for its handoff.
type Row struct {
	TownID    string          `json:"townId"`
	HandoffID string          `json:"handoffId"`
	Status    approval.Status `json:"status"`
	Command   string          `json:"command"`
	// Proposal is what the agent proposed, as it said it.
	Proposal jsontext.Value `json:"proposal"`
	At       string         `json:"at"`
	Expires  string         `json:"expiresAt"`
	// DecidedBy, DecidedAt and Reason are of the decision, "" before it.
	DecidedBy string `json:"decidedBy,omitzero"`
	DecidedAt string `json:"decidedAt,omitzero"`
	Reason    string `json:"reason,omitzero"`
	// Expected is what the rules of the engine expect the command to change, and ExpectedFailure
	// why they expect it to fail. What a game does is its own.
	Expected        []Change           `json:"expected"`
	ExpectedFailure handoff.ReasonCode `json:"expectedFailure,omitzero"`

	place string // in the order of all rows
}

// Place returns the place of a row in the order of all: List goes on behind it.
func (r *Row) Place() string { return r.place }

// errEnough ends a look at towns.
var errEnough = errors.New("enough")

// Find returns the town that was asked about a handoff, or "" where none was. The town says more.
func (r *Reader) Find(ctx context.Context, handoffID string) (townID string, err error) {
	err = r.visit(ctx, func(id string, current commitlog.Entry) error {
		for i := range current.Approvals {
			if current.Approvals[i].HandoffID == handoffID {
				townID = id
				return errEnough
			}
		}
		return nil
	})
	return townID, err
}

// List visits the rows of the towns that of accepts, those that were asked about first, first, and
// of them those behind a place, until visit returns false.
func (r *Reader) List(
	ctx context.Context, after string, of func(townID string) bool, visit func(*Row) bool,
) error {
	var rows []*Row
	err := r.visit(ctx, func(townID string, current commitlog.Entry) error {
		if of(townID) {
			rows = append(rows, r.rowsOf(townID, current)...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(a, b *Row) int { return strings.Compare(a.place, b.place) })
	for _, row := range rows {
		if row.place > after && !visit(row) {
			return nil
		}
	}
	return nil
}

// visit visits the towns in which proposals may wait, until do returns errEnough. A town whose
// record is damaged is left out, and logged. It removes entries of the index that are not needed
// any more.
func (r *Reader) visit(
	ctx context.Context, do func(townID string, current commitlog.Entry) error,
) error {
	err := r.Index.Asked(ctx, func(townID string, entry *commitlog.Message) error {
		current, err := r.Log.Load(ctx, townID)
		if errors.Is(err, commitlog.ErrTownDamaged) {
			r.Logger.Error("the proposals that wait in a town cannot be listed", "town",
				townID, "error", err)
			return nil
		}
		if err != nil {
			return err
		}
		now := r.Now()
		needed := slices.ContainsFunc(current.Approvals,
			func(a approval.Asked) bool { return now.Before(a.Expires) })
		if !needed && time.Since(entry.Stored) > commitlog.AskedAge {
			r.Index.Remove(ctx, entry.Seq)
		}
		return do(townID, current)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (r *Reader) rowsOf(townID string, current commitlog.Entry) (rows []*Row) {
	now := r.Now()
	for i := range current.Approvals {
		a := &current.Approvals[i]
		status := a.Status(current.State.Hash, now)
		if !status.IsOpen() {
			continue
		}
		row, kind, err := r.row(townID, a, current.State)
		if err != nil {
			r.Logger.Error("a proposal that waits cannot be read", "town", townID,
				"handoff", a.HandoffID, "error", err)
			continue
		}
		if row.Status = status; cmp.Or(current.Policy, &r.Default).Requires(kind) {
			rows = append(rows, row)
		}
	}
	return rows
}

func (r *Reader) row(
	townID string, a *approval.Asked, state town.State,
) (*Row, handoff.ProposalType, error) {
	h, err := handoff.Parse(a.Handoff, schemas.Limits{Bytes: len(a.Handoff) + 1})
	if err != nil {
		return nil, "", err
	}
	var said struct {
		Proposal jsontext.Value `json:"proposal"`
	}
	if err := json.Unmarshal(a.Handoff, &said); err != nil {
		return nil, "", err
	}
	row := &Row{
		TownID: townID, HandoffID: a.HandoffID, Command: h.Command, Proposal: said.Proposal,
		At: runevents.Timestamp(a.At), Expires: runevents.Timestamp(a.Expires),
		Expected: []Change{},
	}
	row.place = row.At + " " + a.HandoffID + " " + townID
	if d := a.Decision; d != nil {
		row.DecidedBy, row.DecidedAt, row.Reason = d.ActorID, runevents.Timestamp(d.At), d.Reason
	}
	after, reason := r.Rules.Apply(state.Snapshot, &h.Proposal)
	if row.ExpectedFailure = reason; reason != "" {
		return row, h.Proposal.Type, nil
	}
	changes, err := Changes(state.Canonical, after.Canonical)
	row.Expected = append(row.Expected, changes...)
	return row, h.Proposal.Type, err
}

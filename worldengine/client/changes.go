package client

import (
	"context"
	"iter"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Change is a change of a town that no run has made, such as one by town.put or town.patch: it has
// no run event.
type Change struct {
	TownID string `json:"townId"`
	// Revision is of the town after the change, At is when it was stored.
	Revision uint64 `json:"revision"`
	At       string `json:"at"`
	// Cause is put, remove, mend or pending, as town.history has it.
	Cause string `json:"cause"`
	// ActorID is who put the state, "" if that is not known.
	ActorID string `json:"actorId"`
	// Epoch and Hash are of the state after the change, and of the last state of a removed town.
	Epoch int64  `json:"epoch"`
	Hash  string `json:"hash"`
}

// Changes follows the changes of towns that no run has made, as Commits follows commits.
func (c *Client) Changes(ctx context.Context, follow Follow) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for commit, err := range c.Commits(ctx, follow) {
			if err != nil && !yield(Change{}, err) {
				return
			}
			if change, is := c.ChangeOf(ctx, &commit); is && !yield(change, nil) {
				return
			}
		}
	}
}

// ChangeOf returns the change of a commit, with who made it, which it asks the server. is is false
// if a run made the commit, or it changes no town.
func (c *Client) ChangeOf(
	ctx context.Context, commit *messages.Commit,
) (change Change, is bool) {
	if commit.RunID != "" || commit.Revision == 0 || commit.Epoch == nil {
		return Change{}, false
	}
	change = Change{
		TownID: commit.TownID, Revision: commit.Revision, At: commit.At, Cause: commit.Cause,
		Epoch: *commit.Epoch, Hash: commit.Hash,
	}
	var page messages.History
	_, err := c.Ask(ctx, wire.TownHistory, messages.TownHistory{
		TownID: commit.TownID, Before: commit.Revision + 1, Limit: 1,
	}, &page)
	if err == nil && len(page.Revisions) == 1 &&
		page.Revisions[0].Revision.Revision == commit.Revision {
		change.ActorID = page.Revisions[0].ActorID
	}
	return change, true
}

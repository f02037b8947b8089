package client

import (
	"context"
	"iter"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Change is a change of a town that no run has made, such as one by town.put or town.patch: it has
// no run event. Its cause is put, remove, mend or pending. ActorID is "" if it is not known who put
// the state. Epoch and Hash of a town that was removed are of its last state.
type Change = messages.Change

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

// ChangeOf returns the change of a commit. It asks the server who made it. is is false if a run made
// the commit, or it changes no town.
func (c *Client) ChangeOf(
	ctx context.Context, commit *messages.Commit,
) (change Change, is bool) {
	if commit.RunID != "" || commit.Revision == 0 || commit.Epoch == nil {
		return Change{}, false
	}
	change = Change{TownID: commit.TownID, Revision: messages.Revision{
		Revision: commit.Revision, At: commit.At, Cause: commit.Cause, Epoch: *commit.Epoch,
		Hash: commit.Hash,
	}}
	page, err := ask[messages.History](ctx, c, wire.TownHistory, messages.TownHistory{
		TownID: commit.TownID, Before: commit.Revision + 1, Limit: 1,
	})
	if err == nil && len(page.Revisions) == 1 &&
		page.Revisions[0].Revision.Revision == commit.Revision {
		change.ActorID = page.Revisions[0].ActorID
	}
	return change, true
}

package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/wire"
)

// Change is a change of a town that no run has made, such as one by town.put or town.patch: no run
// event says it.
type Change struct {
	TownID string `json:"townId"`
	// Revision is that of the town after the change, At when it was stored.
	Revision uint64 `json:"revision"`
	At       string `json:"at"`
	// Cause is put, mend or pending, as town.history has it.
	Cause string `json:"cause"`
	// ActorID is who put the state, "" where that is not known.
	ActorID string `json:"actorId"`
	// Epoch and Hash are those of the state after the change.
	Epoch int64  `json:"epoch"`
	Hash  string `json:"hash"`
}

// FollowChanges says which changes to follow.
type FollowChanges struct {
	// TownID is the town whose changes to follow; "" for all towns that the user may hear of.
	TownID string
	// After is a revision behind which to begin; 0 is from now on.
	After uint64
}

// seldom is how often a server is asked that publishes no notices, an earlier version, or does not
// let this user hear them.
const seldom = 30 * time.Second

// Changes follows the changes of towns that no run has made, each once, in the order of their
// revisions. It subscribes to their notices first and then asks town.history what was before, and
// asks again after each reconnection. Of one town nothing is missed that its history keeps; of all
// towns what was changed during a loss must be among the last 500 messages of the log. A server
// that publishes no notices, of an earlier version, is asked every 30 s.
//
// It ends when ctx is done, without an error. It asks again, without end, while the server is away
// (no answer, 429, 503). Any other error is the last one. An iteration is for one goroutine.
func (c *Client) Changes(ctx context.Context, what FollowChanges) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		l := listener{
			follower: c.follower(ctx, Follow{}, nil), town: what.TownID, after: what.After,
			yield: yield,
		}
		err := l.run()
		if err != nil && ctx.Err() == nil && !errors.Is(err, errStopped) {
			yield(Change{}, err)
		}
	}
}

// listener follows the changes of one call of Changes.
type listener struct {
	*follower // asks again while the server is away; it has no subscription here
	town      string
	yield     func(Change, error) bool
	// after is the last revision that needs not be yielded any more.
	after uint64
	// mine are the towns that the user hears of, nil for all.
	mine []string
	subs []*nats.Subscription
}

func (l *listener) run() error {
	nc := l.client.Conn
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	notices := make(chan *nats.Msg, l.pace.waiting)
	defer l.unsubscribe()
	poll := time.NewTicker(l.pace.seldom)
	defer poll.Stop()
	err := l.begin(notices)
	for err == nil {
		if lost := l.losses(); lost.reconnections != l.seen.reconnections {
			err = l.begin(notices) // the server, or what the user may hear, may be another
			continue
		} else if lost != l.seen {
			err = l.patiently(l.catchUp)
			continue
		}
		select {
		case msg := <-notices:
			err = l.take(msg)
		case <-poll.C:
			if len(l.subs) == 0 {
				err = l.patiently(l.catchUp)
			}
		case status := <-changed:
			if status == nats.CLOSED {
				return l.client.closed()
			}
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
	return err
}

func (l *listener) losses() (lost losses) {
	for _, sub := range l.subs {
		dropped, _ := sub.Dropped()
		lost.dropped += dropped
	}
	lost.reconnections = l.client.Conn.Stats().Reconnects
	return lost
}

// begin subscribes to what the user may hear, and yields what the server has by then.
func (l *listener) begin(notices chan *nats.Msg) error {
	err := l.patiently(func() error { return l.hear(notices) })
	if err == nil {
		err = l.patiently(l.catchUp)
	}
	return err
}

// hear asks what the user may hear, subscribes, and finds what the newest revision is where
// following begins with what comes from now on.
func (l *listener) hear(notices chan *nats.Msg) error {
	var me struct {
		Towns   []string `json:"towns"`
		Read    []string `json:"read"`
		Changes bool     `json:"changes"`
	}
	if _, err := l.client.Ask(l.ctx, wire.WhoAmI, struct{}{}, &me); err != nil {
		return err
	}
	if l.mine = me.Read; len(l.mine) == 0 {
		l.mine = me.Towns
	}
	l.unsubscribe()
	if me.Changes {
		if err := l.subscribe(notices); err != nil {
			return err
		}
	}
	if l.after > 0 {
		return nil
	}
	page, err := l.page(0, 1)
	if len(page.Revisions) > 0 {
		l.after = page.Revisions[0].Revision
	}
	return err
}

// subscribe subscribes to the notices. It leaves no subscription where NATS refuses one: the
// permissions of an existing NATS may be those of an earlier version.
func (l *listener) subscribe(notices chan *nats.Msg) error {
	tokens := []string{"*"}
	if l.town != "" {
		tokens = []string{wire.TownToken(l.town)}
	} else if len(l.mine) > 0 {
		tokens = nil
		for _, townID := range l.mine {
			tokens = append(tokens, wire.TownToken(townID))
		}
	}
	nc, before := l.client.Conn, l.client.Conn.LastError()
	for _, token := range tokens {
		sub, err := nc.ChanSubscribe(wire.ChangesSubject(l.client.World, token), notices)
		if err != nil {
			return l.client.unanswered(err, wire.TownHistory, 0)
		}
		l.subs = append(l.subs, sub)
	}
	if err := l.flush(); err != nil {
		return err
	}
	denied := nc.LastError()
	if denied != before && violates(denied, "Subscription",
		wire.ChangesSubject(l.client.World, "")) {
		l.unsubscribe()
	}
	return nil
}

// flush waits until the server knows the subscriptions.
func (l *listener) flush() error {
	ctx, cancel := l.client.bounded(l.ctx)
	defer cancel()
	if err := l.client.Conn.FlushWithContext(ctx); err != nil {
		return l.client.unanswered(err, wire.TownHistory, 0)
	}
	return nil
}

func (l *listener) unsubscribe() {
	for _, sub := range l.subs {
		_ = sub.Unsubscribe()
	}
	l.subs = nil
}

// historyPage is a page of town.history.
type historyPage struct {
	Revisions []struct {
		Change `json:",inline"`
		RunID  string `json:"runId"`
	} `json:"revisions"`
	Next uint64 `json:"next"`
}

// page asks for revisions behind l.after, the newest first. A town that does not exist has none.
func (l *listener) page(before uint64, limit int) (page historyPage, err error) {
	_, err = l.client.Ask(l.ctx, wire.TownHistory, struct {
		TownID string `json:"townId,omitzero"`
		Before uint64 `json:"before,omitzero"`
		After  uint64 `json:"after,omitzero"`
		Limit  int    `json:"limit"`
	}{l.town, before, l.after, limit}, &page)
	if IsCode(err, wire.CodeUnknownTown) {
		err = nil
	}
	return page, err
}

// catchUp yields what the server has and was not yielded.
func (l *listener) catchUp() error {
	seen := l.losses() // those that come from now on need another one
	if err := l.flush(); err != nil {
		return err
	}
	var found []Change
	newest := l.after
	for before, more := uint64(0), true; more; {
		page, err := l.page(before, l.pace.page)
		if err != nil {
			return err
		}
		for _, r := range page.Revisions {
			newest = max(newest, r.Revision)
			if r.TownID == "" {
				r.TownID = l.town
			}
			if r.RunID == "" && (len(l.mine) == 0 || slices.Contains(l.mine, r.TownID)) {
				found = append(found, r.Change)
			}
		}
		if before > 0 && page.Next >= before {
			return invalidAnswer(fmt.Errorf("the history comes back to %d before %d",
				page.Next, before))
		}
		before, more = page.Next, page.Next > 0
	}
	for _, change := range slices.Backward(found) {
		if err := l.next(change); err != nil {
			return err
		}
	}
	l.after, l.seen = newest, seen
	return nil
}

// take yields the change of a notice. One that cannot be read is made up for, and so is one that
// came behind a loss: those before it are missing.
func (l *listener) take(msg *nats.Msg) error {
	if l.losses() != l.seen {
		return nil
	}
	var change Change
	if json.Unmarshal(msg.Data, &change) != nil || change.Revision == 0 {
		return l.patiently(l.catchUp)
	}
	return l.next(change)
}

// next yields a change unless it was yielded before: every server of the world publishes a notice.
func (l *listener) next(change Change) error {
	if change.Revision <= l.after {
		return nil
	}
	l.after = change.Revision
	if !l.yield(change, nil) {
		return errStopped
	}
	return nil
}

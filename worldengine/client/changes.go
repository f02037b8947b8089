package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/messages"
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
	// All has an After of 0 mean all that the history has, as of a world that had no changes.
	All bool
}

// How often a server is asked by time.
const (
	// seldom is for one that publishes no notices, or does not let this user hear them.
	seldom = 30 * time.Second
	// makeUp is for one that publishes notices, as each of its servers does once: a notice that a
	// server did not come to publish is lost, and servers may be exchanged behind an external NATS,
	// without a loss that the client notices.
	makeUp = 5 * time.Minute
)

// Changes follows the changes of towns that no run has made, each once, in the order of their
// revisions. It subscribes to their notices first and then asks town.history what was before. It
// asks again after each reconnection, every 5 minutes because notices may be lost on the server's
// side, and more often where there are no notices (docs/contracts.md, Notices of changes).
//
// Of one town nothing is missed that its history keeps. Of all towns nothing is missed that is
// among the last 500 messages of the log when Changes asks: in 30 s without notices there are more
// from some 17 messages a second on. Where the log has lost its end, or an older one was restored,
// Changes goes on behind the newest revision that it finds when it asks: what was changed since the
// loss is not yielded.
//
// It ends when ctx is done, without an error. It asks again, without end, while the server is away
// (no answer, 429, 503). Any other error is the last one. An iteration is for one goroutine.
func (c *Client) Changes(ctx context.Context, what FollowChanges) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		l := listener{
			follower: c.follower(ctx, Follow{}, nil), town: what.TownID, after: what.After,
			begun: what.All || what.After > 0, yield: yield,
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
	// after is the last revision that needs not be yielded any more. begun says that it is known: 0
	// is then that of a log without changes.
	after uint64
	begun bool
	// mine are the towns that the user hears of, nil for all.
	mine []string
	subs []*nats.Subscription
	// tick is due when the server is to be asked by time.
	tick *time.Timer
}

func (l *listener) run() error {
	nc := l.client.Conn
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	notices := make(chan *nats.Msg, l.pace.waiting)
	defer l.unsubscribe()
	l.tick = time.NewTimer(l.pace.makeUp)
	defer l.tick.Stop()
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
		case <-l.tick.C:
			err = l.begin(notices) // as after a reconnection
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
	pause := l.pace.makeUp
	if len(l.subs) == 0 {
		pause = l.pace.seldom
	}
	l.tick.Reset(pause)
	return err
}

// hear asks what the user may hear, subscribes, and finds what the newest revision is where
// following begins with what comes from now on.
func (l *listener) hear(notices chan *nats.Msg) error {
	me, err := l.client.WhoAmI(l.ctx)
	if err != nil {
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
	if l.begun {
		return nil
	}
	newest, err := l.newest()
	if err == nil {
		l.after, l.begun = newest, true
	}
	return err
}

// subscribe subscribes to the notices. It leaves no subscription where NATS refuses one: the
// permissions of an existing NATS may lack it.
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

// page asks for revisions behind after, the newest first. A town that does not exist has none.
func (l *listener) page(after, before uint64, limit int) (page messages.History, err error) {
	_, err = l.client.Ask(l.ctx, wire.TownHistory, messages.TownHistory{
		TownID: l.town, Before: before, After: after, Limit: limit,
	}, &page)
	if IsCode(err, wire.CodeUnknownTown) {
		err = nil
	}
	return page, err
}

// newest returns the newest revision that the server lists, 0 where it lists none.
func (l *listener) newest() (uint64, error) {
	page, err := l.page(0, 0, 1)
	if err != nil || len(page.Revisions) == 0 {
		return 0, err
	}
	return page.Revisions[0].Revision.Revision, nil
}

// catchUp yields what the server has and was not yielded.
func (l *listener) catchUp() error {
	seen := l.losses() // those that come from now on need another one
	if err := l.flush(); err != nil {
		return err
	}
	found, newest, err := l.missed()
	if err != nil {
		return err
	}
	for _, change := range slices.Backward(found) {
		if err := l.next(change); err != nil {
			return err
		}
	}
	l.after, l.seen = newest, seen
	return nil
}

// missed returns the changes behind l.after, the newest first, and the revision behind which
// following goes on.
func (l *listener) missed() (found []Change, newest uint64, err error) {
	newest = l.after
	for before, more := uint64(0), true; more; {
		page, err := l.page(l.after, before, l.pace.page)
		if err != nil {
			return nil, 0, err
		}
		if l.after > 0 && before == 0 && len(page.Revisions) == 0 {
			newest, err = l.newest() // which is lower where the log has lost its end
			return nil, min(newest, l.after), err
		}
		for i := range page.Revisions {
			r := &page.Revisions[i]
			newest = max(newest, r.Revision.Revision)
			townID := cmp.Or(r.TownID, l.town)
			if r.RunID == "" && (len(l.mine) == 0 || slices.Contains(l.mine, townID)) {
				found = append(found, Change{TownID: townID, Revision: r.Revision.Revision,
					At: r.At, Cause: r.Cause, ActorID: r.ActorID, Epoch: r.Epoch, Hash: r.Hash})
			}
		}
		if before > 0 && page.Next >= before {
			return nil, 0, invalidAnswer(fmt.Errorf("the history comes back to %d before %d",
				page.Next, before))
		}
		before, more = page.Next, page.Next > 0
	}
	return found, newest, nil
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

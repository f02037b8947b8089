package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Follow says which run events to follow.
type Follow struct {
	// RunID is the one run to follow, behind AfterSeq, to its end.
	RunID    string
	AfterSeq int64
	// TownID is the town whose runs to follow; "" for all towns. Runs that began at From or later
	// are followed from their first event, and of others there is what comes from now on; the zero
	// time is now. They are not looked at where RunID is given, but for the subject.
	TownID string
	From   time.Time
}

// pace has the bounds of following. Tests set others.
type pace struct {
	// waiting is how many messages may wait for a slow reader; then they are dropped, and asked
	// for.
	waiting int
	// late bounds how late an event may come: once one has come, all that were persisted so much
	// before it have. The servers of a cluster deliver in an order that is not quite that of the
	// log.
	late time.Duration
	// page is how many runs are asked for at once, sweep after how many events ended runs are
	// forgotten.
	page, sweep int
	// away is how long to wait at least before what failed, because the server was away, is asked
	// again; seldom and makeUp are how often a server is asked for changes, by time: one that
	// publishes no notices, and one that does.
	away, seldom, makeUp time.Duration
}

var defaultPace = pace{
	waiting: 10_000, late: time.Minute, page: 200, sweep: 1000, away: time.Second, seldom: seldom,
	makeUp: makeUp,
}

// Events follows run events: each one once, those of a run in their order, through losses of the
// connection too. It subscribes first and then asks for what was before; runSeq says what came
// already, and where something is missing, which it asks for. After a reconnection, and where the
// reader was so slow that messages were dropped, it asks for the runs that had an event since the
// last one that is certain, however long ago that is and however old the runs are. A run is left
// out of that whose first events are no longer kept.
//
// It ends when ctx is done, without an error, and with the run of Follow.RunID. It asks again,
// without end, while the server is away (no answer, 429, 503). Of many runs, one whose events
// cannot be had is told once, by a *RunError, and then left out; the others go on for as long as
// the reader does. Any other error is the last one: that of the one run, of a user who may not read
// the events or the list of runs, and of a closed connection.
//
// Each iteration is a subscription of its own, which ends with it. The reader may take its time.
// The iterations of a client may run at the same time; one of them is for one goroutine.
func (c *Client) Events(ctx context.Context, what Follow) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := c.follower(ctx, what, yield).run()
		if err != nil && ctx.Err() == nil && !errors.Is(err, errStopped) {
			yield(Event{}, err)
		}
	}
}

// RunError says that the events of one run cannot be had, and why: such as a *ReplyError with the
// code RUN_DAMAGED. Events yields no more of the run; those up to AfterSeq were yielded. When the
// cause is mended, Follow{RunID, AfterSeq} goes on.
type RunError struct {
	RunID    string
	AfterSeq int64
	Err      error
}

// Error names the run and gives the cause.
func (e *RunError) Error() string {
	return fmt.Sprintf("the events of run %s behind %d cannot be had: %s", e.RunID,
		e.AfterSeq, e.Err)
}

// Unwrap returns the cause.
func (e *RunError) Unwrap() error { return e.Err }

// errStopped says that the reader wants no more events.
var errStopped = errors.New("client: the reader has stopped")

// follower follows the events of one call of Events. It is for one goroutine.
type follower struct {
	client *Client
	ctx    context.Context
	what   Follow
	yield  func(Event, error) bool
	pace   pace

	sub *nats.Subscription
	// before is the last error of the connection before the subscription.
	before error
	// seen are the losses that were made up for.
	seen losses

	runs
}

// losses count what may have taken messages away from a subscription.
type losses struct {
	reconnections uint64
	dropped       int
}

// follower returns a follower that has not begun.
func (c *Client) follower(
	ctx context.Context, what Follow, yield func(Event, error) bool,
) *follower {
	f := &follower{
		client: c, ctx: ctx, what: what, yield: yield, pace: defaultPace,
		runs: runs{known: map[string]*followed{}},
	}
	if c.pace != nil {
		f.pace = *c.pace
	}
	return f
}

func (f *follower) losses() losses {
	dropped, _ := f.sub.Dropped()
	return losses{f.client.Conn.Stats().Reconnects, dropped}
}

func (f *follower) run() error {
	token, runID := "*", "*"
	if f.what.TownID != "" {
		token = wire.TownToken(f.what.TownID)
	}
	if f.what.RunID != "" {
		runID = f.what.RunID
		f.add(runID, f.what.AfterSeq)
	}
	nc := f.client.Conn
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	came := make(chan *nats.Msg, f.pace.waiting)
	var err error
	f.before = nc.LastError()
	f.sub, err = nc.ChanSubscribe(wire.EventSubject(f.client.World, token, runID), came)
	if err != nil {
		return f.client.unanswered(err, wire.RunEvents, 0)
	}
	defer func() { _ = f.sub.Unsubscribe() }()
	if err = f.patiently(f.flush); err == nil && f.what.RunID == "" {
		err = f.patiently(f.begin)
	}
	if err == nil {
		err = f.patiently(f.catchUp)
	}
	for err == nil && !f.over() {
		if f.losses() != f.seen {
			err = f.patiently(f.catchUp)
			continue
		}
		select {
		case msg := <-came:
			err = f.patiently(func() error { return f.take(msg) })
		case status := <-changed:
			if status == nats.CLOSED {
				return f.client.closed()
			}
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
	return err
}

// over reports whether the one run that is followed has ended.
func (f *follower) over() bool { return f.what.RunID != "" && f.known[f.what.RunID].ended }

// flush waits until the server knows the subscription, or has refused it.
func (f *follower) flush() error {
	ctx, cancel := f.client.bounded(f.ctx)
	defer cancel()
	if err := f.client.Conn.FlushWithContext(ctx); err != nil {
		return f.client.unanswered(err, wire.RunEvents, 0)
	}
	denied := f.client.Conn.LastError()
	if denied != f.before && violates(denied, "Subscription", f.sub.Subject+`"`) {
		return &UnavailableError{
			Code: codeDenied, Message: "this user may not read the events: " + denied.Error(),
			Cause: denied,
		}
	}
	return nil
}

// patiently does a step again while the server is away. What a step has yielded is not yielded
// again.
func (f *follower) patiently(step func() error) error {
	for {
		err := step()
		pause, away := f.away(err)
		if !away {
			return err
		}
		if err := backoff.Sleep(f.ctx, pause); err != nil {
			return err
		}
	}
}

// away reports whether an error may be over after a pause.
func (f *follower) away(err error) (pause time.Duration, away bool) {
	var refused *ReplyError
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &refused):
		away = refused.Status == http.StatusTooManyRequests ||
			refused.Status == http.StatusServiceUnavailable
		return max(f.pace.away, refused.RetryAfter), away
	case errors.As(err, &unavailable) && unavailable.Code == codeConnection:
		away = !f.client.Conn.IsClosed()
	case errors.As(err, &unavailable):
		away = unavailable.Code == codeTimeout || unavailable.Code == codeNoResponders
	}
	return f.pace.away, away
}

// ofRun reports whether an error is one of the run that was asked for, and not of the client or of
// all runs.
func ofRun(err error) bool {
	var refused *ReplyError
	return errors.As(err, &refused) || IsCode(err, codeInvalid)
}

// catchUp yields what the server has and was not yielded.
func (f *follower) catchUp() error {
	seen := f.losses() // those that come from now on need another one
	if err := f.flush(); err != nil {
		return err
	}
	var err error
	if f.what.RunID != "" {
		err = f.catchUpRun(f.known[f.what.RunID])
	} else {
		err = f.catchUpRuns()
	}
	if err == nil {
		f.seen = seen
	}
	return err
}

// catchUpRun is catchUp for the one run that is followed.
func (f *follower) catchUpRun(run *followed) error {
	before := run.last
	if err := f.fetch(run); err != nil || run.ended || run.last > before {
		return err
	}
	now, err := f.client.Run(f.ctx, run.id)
	if err != nil {
		return err
	}
	run.ended = now.Status.Terminal() && now.LastEventSeq <= run.last
	return nil
}

// fetch yields the events that the server has of a run behind the last one.
func (f *follower) fetch(run *followed) error {
	request := messages.RunEvents{RunID: run.id, AfterSeq: run.last, AfterMark: run.after}
	for page, err := range f.client.eventPages(f.ctx, request) {
		mark := cmp.Or(page.mark, uint64(unknownMark))
		for i := range page.events {
			event := &page.events[i]
			if run.last == 0 && run.after > 0 {
				run.last = event.RunSeq - 1
			}
			if event.RunSeq > run.last+1 {
				return invalidAnswer(fmt.Errorf("run %s has no event %d before %d", run.id,
					run.last+1, event.RunSeq))
			}
			if err := f.next(run, event, mark); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// next yields an event, which is not behind a mark, unless it came before.
func (f *follower) next(run *followed, event *Event, mark uint64) error {
	if event.RunSeq <= run.last {
		return nil
	}
	run.last, run.mark = event.RunSeq, mark
	run.ended = run.ended || event.EventType.EndsRun()
	if event.RunSeq == 1 {
		run.began = persisted(event)
	}
	if !f.yield(*event, nil) {
		return errStopped
	}
	f.unswept++
	return nil
}

// take yields an event that came, behind those that are missing before it, and behind what was lost
// before it came.
func (f *follower) take(msg *nats.Msg) error {
	if f.losses() != f.seen {
		if err := f.catchUp(); err != nil {
			return err
		}
	}
	event, err := eventOf(msg.Data)
	token := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
	if err == nil && (event.RunID != token || event.RunSeq < 1) {
		err = invalidAnswer(fmt.Errorf("on %s came event %d of run %q", msg.Subject,
			event.RunSeq, event.RunID))
	}
	if err != nil {
		event = Event{Record: runevents.Record{Write: runevents.Write{RunID: token}}}
	}
	mark, markErr := strconv.ParseUint(msg.Header.Get(wire.LogSeqHeader), 10, 64)
	if markErr != nil || mark == 0 {
		mark = unknownMark
	}
	if f.what.RunID == "" {
		return f.takeOfMany(&event, mark, err)
	}
	run := f.known[f.what.RunID]
	if err == nil && event.RunSeq > run.last+1 {
		err = f.fetch(run)
	}
	if err != nil {
		return err
	}
	return f.next(run, &event, mark)
}

// persisted returns when an event was stored; the zero time where it does not say.
func persisted(event *Event) time.Time {
	at, err := time.Parse(time.RFC3339Nano, event.PersistedAt)
	if err != nil {
		return time.Time{}
	}
	return at
}

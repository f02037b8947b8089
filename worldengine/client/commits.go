package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Follow selects the commits to follow, and the first of them.
type Follow struct {
	// TownID is the town to follow. "" follows all towns that the user may read, and the commits
	// without a town.
	TownID string
	// After is the cursor of the commit before the first one; "0" begins with the oldest commit. If it
	// is "", following begins with the first commit that was persisted at From or later. If From is
	// zero too, it begins with the next commit. Clocks of servers may differ, so From is not exact.
	After string
	From  time.Time
	// Idle, unless 0, makes Commits end when the log has had no further commit for this time.
	Idle time.Duration
	// RunID makes Events follow one run to its end, from the event after the runSeq AfterSeq. After
	// and From are then ignored. TownID, if known, saves reading the commits of other towns.
	RunID    string
	AfterSeq int64
}

// Causes of a LossError. Other causes are a *ReplyError INVALID_CURSOR, and an *UnavailableError
// about an invalid event.
var (
	ErrGap     = errors.New("the log no longer keeps all of them")
	ErrDamaged = errors.New("the commit cannot be read")
)

// LossError means that following continues without the commits between two cursors. If Err is a
// *ReplyError with the code INVALID_CURSOR, the log has lost its end or was replaced by an older one:
// following has gone back to Cursor, and some commits may come again.
type LossError struct {
	After, Cursor string
	Err           error
}

// Error returns the cursors and the cause.
func (e *LossError) Error() string {
	return fmt.Sprintf("commits between %s and %s are not shown: %s", e.After, e.Cursor, e.Err)
}

// Unwrap returns the cause.
func (e *LossError) Unwrap() error { return e.Err }

const (
	pageOfCommits = 1000
	// pollTimeout is how long a request waits for a commit.
	pollTimeout = 5 * time.Second
	// awayInterval is the least pause before an unavailable server is asked again.
	awayInterval = 250 * time.Millisecond
)

var errStopped = errors.New("client: the iteration was stopped")

// Commits follows the commits of the log, in order and at least once, even if the connection is
// lost or the server restarts. While no server answers, or it answers 429 or 503, Commits asks
// again. It ends without an error when ctx is done. A *LossError names commits that are missing,
// and the next commits follow. Any other error ends the iteration. One goroutine uses an iteration,
// at its own pace.
func (c *Client) Commits(ctx context.Context, follow Follow) iter.Seq2[messages.Commit, error] {
	return func(yield func(messages.Commit, error) bool) {
		f := follower{client: c, ctx: ctx, town: follow.TownID, idle: follow.Idle}
		more, err := true, f.start(&follow)
		for err == nil && more {
			more, err = f.page(yield)
		}
		if err != nil && ctx.Err() == nil {
			yield(messages.Commit{}, err)
		}
	}
}

type follower struct {
	client *Client
	ctx    context.Context
	town   string
	idle   time.Duration // see Follow

	after string        // the cursor
	at    time.Time     // when the last commit was persisted; zero before the first
	quiet time.Duration // how long no commit has come
}

// start sets the cursor to the position before the first commit.
func (f *follower) start(follow *Follow) (err error) {
	switch {
	case follow.After != "":
		f.after = follow.After
	case follow.From.IsZero():
		var page messages.EventListReply
		page, err = f.ask(messages.EventListRequest{TownID: f.town})
		f.after = page.Cursor
	default:
		f.after, err = f.seek(follow.From)
	}
	return err
}

// page waits for the next page of commits and yields them. It returns false if the iteration was
// stopped or is idle. If the log ends before the cursor, page goes back to the time of the last
// yielded commit, or to the oldest commit if there is none.
func (f *follower) page(yield func(messages.Commit, error) bool) (more bool, err error) {
	wait := pollTimeout
	if f.idle > 0 {
		wait = min(wait, f.idle-f.quiet)
	}
	askedAt := time.Now()
	page, err := f.ask(messages.EventListRequest{After: f.after, TownID: f.town,
		Limit: pageOfCommits, WaitMs: wait.Milliseconds()})
	if IsCode(err, wire.CodeInvalidCursor) {
		lost := &LossError{After: f.after, Err: err}
		if f.after, err = f.seek(f.at); err != nil {
			return false, err
		}
		lost.Cursor = f.after
		return yield(messages.Commit{}, lost), nil
	}
	if err != nil {
		return false, err
	}
	if page.Gap && f.after != "0" &&
		!yield(messages.Commit{}, &LossError{f.after, page.Cursor, ErrGap}) {
		return false, nil
	}
	for i := range page.Commits {
		commit, lost := &page.Commits[i], error(nil)
		if commit.Damaged {
			lost = &LossError{f.after, commit.Cursor, ErrDamaged}
		} else if at := persisted(commit); !at.IsZero() {
			f.at = at
		}
		if !yield(*commit, lost) {
			return false, nil
		}
	}
	f.after = page.Cursor
	f.quiet += time.Since(askedAt)
	if len(page.Commits) > 0 || page.Gap {
		f.quiet = 0
	}
	return f.idle == 0 || f.quiet < f.idle, nil
}

// seek returns the cursor before the first commit that was persisted at a time or later. It assumes
// that the times grow with the log.
func (f *follower) seek(from time.Time) (string, error) {
	page, err := f.ask(messages.EventListRequest{TownID: f.town})
	if err != nil {
		return "", err
	}
	high, err := sequence(page.Cursor)
	low := uint64(0) // commits up to low are earlier than from, commits after high are not
	for err == nil && low < high {
		var at time.Time
		var seq uint64
		middle := low + (high-low)/2
		if seq, at, err = f.first(middle, high); at.IsZero() || !at.Before(from) {
			high = middle
		} else {
			low = seq
		}
	}
	return strconv.FormatUint(low, 10), err
}

// first returns the cursor and the time of the first commit between two cursors; the zero time if
// there is none.
func (f *follower) first(after, until uint64) (seq uint64, at time.Time, err error) {
	for seq = after; seq < until && at.IsZero(); {
		page, err := f.ask(messages.EventListRequest{
			After: strconv.FormatUint(seq, 10), TownID: f.town, Limit: 1,
		})
		if err != nil {
			return 0, at, err
		}
		next, err := sequence(page.Cursor)
		if err != nil || next <= seq {
			return 0, at, invalidAnswer(fmt.Errorf("the page after %d ends at %q of %d",
				seq, page.Cursor, until))
		}
		seq = next
		if len(page.Commits) > 0 {
			at = persisted(&page.Commits[0])
		}
	}
	return seq, at, nil
}

// ask asks for a page, patiently.
func (f *follower) ask(r messages.EventListRequest) (page messages.EventListReply, err error) {
	err = f.client.Patiently(f.ctx, func() error {
		page, err = f.client.EventList(f.ctx, r)
		return err
	})
	return page, err
}

// Patiently repeats step, which sends requests, while no server answers or one answers 429 or 503.
// It returns any other error of step. When ctx is done, it returns ctx's error and step's last one.
func (c *Client) Patiently(ctx context.Context, step func() error) error {
	for {
		err := step()
		pause, away := c.away(err)
		if !away {
			return err
		}
		if ended := backoff.Sleep(ctx, pause); ended != nil {
			return fmt.Errorf("%w; the last try: %w", ended, err)
		}
	}
}

// away reports whether a repetition may help after an error, and the pause before it.
func (c *Client) away(err error) (pause time.Duration, away bool) {
	if refused, is := errors.AsType[*ReplyError](err); is {
		away = refused.Status == http.StatusTooManyRequests || refused.Status == http.StatusServiceUnavailable
		return max(awayInterval, refused.RetryAfter), away
	}
	away = IsCode(err, codeTimeout) || IsCode(err, codeNoResponders) || IsCode(err, codeConnection) && !c.Conn.IsClosed()
	return awayInterval, away
}

// persisted returns the time at which a commit was stored; zero if it has none.
func persisted(commit *messages.Commit) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, commit.At)
	return at
}

func sequence(cursor string) (uint64, error) {
	seq, err := strconv.ParseUint(cursor, 10, 64)
	if err != nil {
		return 0, invalidAnswer(fmt.Errorf("the cursor %q is no number", cursor))
	}
	return seq, nil
}

// Change is a change of a town that no run made, such as a town.put. It has no run events. Its
// cause is put, remove, mend or pending. ActorID is "" if it is unknown. For a removed town, Epoch
// and Hash are its last ones.
type Change = messages.Change

// Changes follows the changes of towns that no run made, as Commits follows commits.
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

// ChangeOf returns the change of a commit, and asks the server for its actor. It returns false if
// the commit is of a run or changes no town.
func (c *Client) ChangeOf(ctx context.Context, commit *messages.Commit) (change Change, is bool) {
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

// Event is a run event.
type Event struct {
	runevents.Record
	// JSON is the event as it is stored.
	JSON jsontext.Value
	// TownID and Cursor are of the event's commit. They are "" with Follow.RunID, and TownID is "" for
	// an event without a town.
	TownID, Cursor string
}

// Events follows run events as Commits follows commits: at least once, and the events of a run in
// order. With Follow.RunID it follows one run until the run ends; an error about the run's events,
// such as RUN_DAMAGED, ends the iteration.
func (c *Client) Events(ctx context.Context, follow Follow) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if follow.RunID != "" {
			err := c.followRun(ctx, &follow, yield)
			if err != nil && ctx.Err() == nil && !errors.Is(err, errStopped) {
				yield(Event{}, err)
			}
			return
		}
		for commit, err := range c.Commits(ctx, follow) {
			if err != nil && !yield(Event{}, err) {
				return
			}
			for _, data := range commit.Events {
				event, err := eventOf(data)
				if err != nil {
					err = &LossError{commit.Cursor, commit.Cursor, err}
				}
				event.TownID, event.Cursor = commit.TownID, commit.Cursor
				if !yield(event, err) {
					return
				}
			}
		}
	}
}

// followRun yields the events of one run until the run ends. It asks for new events after each
// commit of the run and after each loss.
func (c *Client) followRun(
	ctx context.Context, follow *Follow, yield func(Event, error) bool,
) error {
	end := follower{client: c, ctx: ctx, town: follow.TownID}
	if err := end.start(&Follow{}); err != nil {
		return err
	}
	last, ended := follow.AfterSeq, false
	catchUp := func() error {
		for event, err := range c.RunEvents(ctx, follow.RunID, last) {
			if err != nil {
				return err
			}
			last, ended = event.RunSeq, ended || event.EventType.EndsRun()
			if !yield(event, nil) {
				return errStopped
			}
		}
		return nil
	}
	err := c.Patiently(ctx, catchUp)
	if err == nil && last == follow.AfterSeq { // the run may have ended at AfterSeq
		err = c.Patiently(ctx, func() error {
			run, err := c.Run(ctx, follow.RunID)
			ended = err == nil && run.Status.Terminal() && run.LastEventSeq <= last
			return err
		})
	}
	if err != nil || ended {
		return err
	}
	for commit, err := range c.Commits(ctx, Follow{TownID: follow.TownID, After: end.after}) {
		if _, lost := errors.AsType[*LossError](err); err != nil && !lost {
			return err
		}
		if err == nil && commit.RunID != follow.RunID {
			continue
		}
		if err := c.Patiently(ctx, catchUp); err != nil || ended {
			return err
		}
	}
	return nil
}

// RunEvents iterates over the present events of a run after a runSeq. It ends with the first error.
func (c *Client) RunEvents(ctx context.Context, runID string, after int64) iter.Seq2[Event, error] {
	return rows(after, func(from int64) (events []Event, more int64, err error) {
		page, err := ask[messages.Events](ctx, c, wire.RunEvents,
			messages.RunEvents{RunID: runID, AfterSeq: from})
		if err != nil {
			return nil, 0, err
		}
		if len(page.Events) == 0 && from < page.LastEventSeq {
			return nil, 0, invalidAnswer(fmt.Errorf("the events of run %s break off at %d of %d",
				runID, from, page.LastEventSeq))
		}
		for _, data := range page.Events {
			event, err := eventOf(data)
			if err != nil {
				return events, 0, err
			}
			events, more = append(events, event), event.RunSeq
		}
		if more >= page.LastEventSeq {
			more = 0
		}
		return events, more, nil
	})
}

func eventOf(data jsontext.Value) (Event, error) {
	event := Event{JSON: data}
	if err := json.Unmarshal(data, &event.Record); err != nil {
		return Event{}, invalidAnswer(fmt.Errorf("an event: %w", err))
	}
	return event, nil
}

package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Follow selects the commits to follow, and the first of them.
type Follow struct {
	// TownID is the town to follow; "" for all that the user may read, and the commits of no town.
	TownID string
	// After is the cursor to begin behind: "0" for the oldest commit that is kept. If it is "",
	// following begins with the first commit that was persisted at From or later, and if From is
	// zero too, with the next commit. If the clocks of servers differ, so may the beginning.
	After string
	From  time.Time
	// RunID makes Events follow one run to its end, from the event behind AfterSeq on. After and
	// From do not count then, and TownID, if it is known, saves it the commits of other towns.
	RunID    string
	AfterSeq int64
}

// Why commits are lost, in a LossError; the third reason is a *ReplyError INVALID_CURSOR.
var (
	ErrGap     = errors.New("the log no longer keeps all of them")
	ErrDamaged = errors.New("the commit cannot be read")
)

// LossError says that commits between two cursors could not be had, and that following goes on. If
// Err is a *ReplyError with the code INVALID_CURSOR, the log has lost its end, or an older one was
// put in its place: following went back to Cursor, and some commits come again.
type LossError struct {
	After, Cursor string
	Err           error
}

// Error names the cursors and gives the cause.
func (e *LossError) Error() string {
	return fmt.Sprintf("commits between %s and %s are not shown: %s", e.After, e.Cursor, e.Err)
}

// Unwrap returns the cause.
func (e *LossError) Unwrap() error { return e.Err }

// Bounds of following.
const (
	pageOfCommits = 1000
	// pollWait is how long a request waits for a commit, and pollLate how much later its answer may
	// come before it is asked again.
	pollWait, pollLate = 5 * time.Second, 5 * time.Second
	// awayPause is the least pause before a server that was away is asked again.
	awayPause = 250 * time.Millisecond
)

// errStopped says that the reader wants no more.
var errStopped = errors.New("client: the reader has stopped")

// Commits follows the commits of the log, in its order and at least once, through losses of the
// connection and restarts of the server. It ends when ctx is done, without an error. While the
// server is away (no answer, 429, 503) it asks again without end. A *LossError says which commits
// could not be had, and the next ones follow; any other error is the last one. Each iteration is
// for one goroutine, and its reader may take its time.
func (c *Client) Commits(ctx context.Context, follow Follow) iter.Seq2[messages.Commit, error] {
	return func(yield func(messages.Commit, error) bool) {
		f := follower{client: c, ctx: ctx, town: follow.TownID, yield: yield}
		err := f.begin(&follow)
		for err == nil {
			err = f.page()
		}
		if ctx.Err() == nil && !errors.Is(err, errStopped) {
			yield(messages.Commit{}, err)
		}
	}
}

// follower follows the commits of one iteration.
type follower struct {
	client *Client
	ctx    context.Context
	town   string
	yield  func(messages.Commit, error) bool

	after string    // the cursor
	at    time.Time // when the last commit was persisted; zero before the first
	wait  bool      // for a commit, because the server has answered
}

// begin finds the cursor to begin behind.
func (f *follower) begin(follow *Follow) (err error) {
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

// page yields the next page of commits, for which it may wait.
func (f *follower) page() error {
	request := messages.EventListRequest{After: f.after, TownID: f.town, Limit: pageOfCommits}
	if f.wait {
		request.WaitMs = pollWait.Milliseconds()
	}
	page, err := f.ask(request)
	if IsCode(err, wire.CodeInvalidCursor) {
		return f.restart(err)
	}
	if err != nil {
		return err
	}
	f.wait = true
	if page.Gap && f.after != "0" {
		err = f.give(messages.Commit{}, &LossError{f.after, page.Cursor, ErrGap})
	}
	for i := 0; err == nil && i < len(page.Commits); i++ {
		err = f.next(&page.Commits[i])
	}
	f.after = page.Cursor
	return err
}

// next yields a commit, with an error if it is damaged.
func (f *follower) next(commit *messages.Commit) error {
	if commit.Damaged {
		return f.give(*commit, &LossError{f.after, commit.Cursor, ErrDamaged})
	}
	if at := persisted(commit); !at.IsZero() {
		f.at = at
	}
	return f.give(*commit, nil)
}

func (f *follower) give(commit messages.Commit, err error) error {
	if !f.yield(commit, err) {
		return errStopped
	}
	return nil
}

// restart goes on, in a log that does not reach the cursor, with the commits since the time of the
// last one that was yielded, or else with all commits.
func (f *follower) restart(invalid error) error {
	lost := &LossError{After: f.after, Err: invalid}
	var err error
	if f.after, err = f.seek(f.at); err != nil {
		return err
	}
	lost.Cursor = f.after
	return f.give(messages.Commit{}, lost)
}

// seek returns the cursor before the first commit that was persisted at a time or later. It takes
// the times to grow with the log.
func (f *follower) seek(from time.Time) (string, error) {
	page, err := f.ask(messages.EventListRequest{TownID: f.town})
	if err != nil {
		return "", err
	}
	high, err := sequence(page.Cursor)
	low := uint64(0) // commits up to low are earlier, and those behind high are not
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

// first returns the cursor of the first commit behind another one, and when it was persisted; the
// zero time if there is none up to a cursor.
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
			return 0, at, invalidAnswer(fmt.Errorf("the page behind %d ends at %q of %d",
				seq, page.Cursor, until))
		}
		seq = next
		if len(page.Commits) > 0 {
			at = persisted(&page.Commits[0])
		}
	}
	return seq, at, nil
}

// ask asks for a page, again while the server is away.
func (f *follower) ask(r messages.EventListRequest) (page messages.EventListReply, err error) {
	err = f.client.patiently(f.ctx, func() error {
		page = messages.EventListReply{}
		if r.WaitMs == 0 {
			_, err := f.client.Ask(f.ctx, wire.EventList, r, &page)
			return err
		}
		ctx, cancel := context.WithTimeout(f.ctx, pollWait+pollLate)
		defer cancel()
		page, err = f.client.EventList(ctx, r)
		r.WaitMs = 0 // the next attempt is by Ask, which knows why a user gets no answer
		return err
	})
	return page, err
}

// patiently does a step again while the server is away, until ctx is done.
func (c *Client) patiently(ctx context.Context, step func() error) error {
	for {
		err := step()
		pause, away := c.away(err)
		if !away {
			return err
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// away reports whether an error may be over after a pause.
func (c *Client) away(err error) (pause time.Duration, away bool) {
	var refused *ReplyError
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &refused):
		return max(awayPause, refused.RetryAfter), refused.Status ==
			http.StatusTooManyRequests || refused.Status == http.StatusServiceUnavailable
	case errors.As(err, &unavailable) && unavailable.Code == codeConnection:
		away = !c.Conn.IsClosed()
	case errors.As(err, &unavailable):
		away = unavailable.Code == codeTimeout || unavailable.Code == codeNoResponders
	}
	return awayPause, away
}

// persisted returns when a commit was stored; the zero time if it does not say.
func persisted(commit *messages.Commit) time.Time {
	at, err := time.Parse(time.RFC3339Nano, commit.At)
	if err != nil {
		return time.Time{}
	}
	return at
}

// sequence returns the number that a cursor of the server is.
func sequence(cursor string) (uint64, error) {
	seq, err := strconv.ParseUint(cursor, 10, 64)
	if err != nil {
		return 0, invalidAnswer(fmt.Errorf("the cursor %q is no number", cursor))
	}
	return seq, nil
}

package game

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"worldengine/runevents/recent"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/apply"
)

// ReplyRouter sends the requests of applications, and receives plugins' answers.
type ReplyRouter interface {
	// Ask sends a request of a logical attempt. The mailbox gets the answer.
	Ask(subject string, m *Mailbox, attempt int64, data []byte) error
	// Forget ends a mailbox. With gaveUp its later answers count as late for a while.
	Forget(m *Mailbox, gaveUp bool)
	Close()
}

// Identity names a mailbox's application.
type Identity struct {
	TownID, HandoffID, RunID string
	// Trace is for the headers of its requests.
	Trace trace.Context
}

// Applied reports whether a reply says that the command was applied.
func (i Identity) Applied(msg *nats.Msg) bool {
	answer, err := apply.ParseAnswer(msg.Data, i.HandoffID, schemas.Limits{})
	return err == nil && answer.Status == apply.Applied
}

// Mailbox receives the replies to one application's requests.
type Mailbox struct {
	Identity
	token   string // of the reply subject
	replies chan Reply
	tally   *tally
}

// tally counts, for each attempt of an application, the requests and the answers "applied". The
// inbox's lock guards it.
type tally struct{ attempts []attemptTally }

type attemptTally struct {
	attempt        int64
	asked, applied int
}

func (t *tally) of(attempt int64) *attemptTally {
	for i := range t.attempts {
		if t.attempts[i].attempt == attempt {
			return &t.attempts[i]
		}
	}
	t.attempts = append(t.attempts, attemptTally{attempt: attempt})
	return &t.attempts[len(t.attempts)-1]
}

// tooMany counts an answer, and reports whether there are now more answers "applied" than requests:
// a plugin answers each request once.
func (t *tally) tooMany(r Reply) bool {
	if !bytes.Contains(r.Msg.Data, saysApplied) {
		return false
	}
	of := t.of(r.Attempt)
	of.applied++
	return of.asked > 0 && of.applied > of.asked
}

// saysApplied is in every answer with the status applied, and hardly in another one:
// UnusedAnswers.Double reads the answer.
var saysApplied = []byte(`"` + string(apply.Applied) + `"`)

// Reply is a message for an application, to a request of a logical attempt. Look has no message:
// the reader has to look at the log, which has gone on with the command.
type Reply struct {
	Msg     *nats.Msg
	Attempt int64
	Look    bool
}

// maxReplies bounds the replies in a mailbox. Others are lost; the request is sent again.
const maxReplies = 64

// NewMailbox returns an empty mailbox of an application.
func NewMailbox(of Identity) *Mailbox {
	return &Mailbox{Identity: of, token: nuid.Next(), replies: make(chan Reply, maxReplies),
		tally: new(tally)}
}

// Next returns the next reply, or the zero reply if none comes within wait.
func (m *Mailbox) Next(ctx context.Context, wait time.Duration) Reply {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-m.replies:
		return r
	case <-timer.C:
	case <-ctx.Done():
	}
	select { // a reply that is there counts, also where the time is over
	case r := <-m.replies:
		return r
	default:
		return Reply{}
	}
}

// Deliver puts a reply into the mailbox.
func (m *Mailbox) Deliver(r Reply) {
	select {
	case m.replies <- r:
	default: // it has more answers than it can read, and asks again
	}
}

// Inbox receives plugins' answers. An application has one reply subject for the requests of each
// attempt, so that an answer to any of them counts, however late: "applied" counts in every
// attempt, and raises an alert if the application was given up.
type Inbox struct {
	nc     *nats.Conn
	prefix string
	sub    *nats.Subscription
	unused UnusedAnswers

	mu    sync.Mutex
	open  map[string]*Mailbox
	ended *recent.Map[string, endedMailbox]
}

// UnusedAnswers handles the answers that change nothing. An answer may be malformed.
type UnusedAnswers struct {
	// Late gets an answer for an application that was given up.
	Late func(Identity, *nats.Msg)
	// Double gets an answer "applied" beyond the number of requests.
	Double func(Identity, *nats.Msg)
}

// endedMailbox is the memory of a mailbox.
type endedMailbox struct {
	Identity
	gaveUp bool
	tally  *tally
}

// maxLate bounds the remembered ended applications.
const maxLate = 4096

// OpenInbox subscribes. unused gets the answers that come too late, or once too often.
func OpenInbox(nc *nats.Conn, unused UnusedAnswers) (*Inbox, error) {
	i := &Inbox{
		nc: nc, prefix: nc.NewInbox() + ".", unused: unused,
		open: map[string]*Mailbox{}, ended: recent.NewMap[string, endedMailbox](maxLate),
	}
	var err error
	if i.sub, err = nc.Subscribe(i.prefix+"*.*", i.take); err != nil {
		return nil, fmt.Errorf("worldengine: replies of plugins: %w", err)
	}
	return i, nil
}

// Close ends the subscription.
func (i *Inbox) Close() { _ = i.sub.Unsubscribe() } // fails only when the connection is gone

func (i *Inbox) take(msg *nats.Msg) {
	token, number, _ := strings.Cut(strings.TrimPrefix(msg.Subject, i.prefix), ".")
	attempt, _ := strconv.ParseInt(number, 10, 64) // 0, which is no attempt, where it is no number
	of, late, double := i.deliver(token, Reply{Msg: msg, Attempt: attempt})
	if late {
		i.unused.Late(of, msg)
	}
	if double {
		i.unused.Double(of, msg)
	}
}

// deliver puts a reply into an open mailbox. It reports whether the application was given up
// before, and whether this is one answer too many. It holds the lock meanwhile, so that Forget
// finds every reply that was delivered before the mailbox ended.
func (i *Inbox) deliver(token string, r Reply) (of Identity, late, double bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if m := i.open[token]; m != nil {
		m.Deliver(r)
		return m.Identity, false, m.tally.tooMany(r)
	}
	ended, known := i.ended.Get(token)
	return ended.Identity, known && ended.gaveUp, known && ended.tally.tooMany(r)
}

// Ask implements ReplyRouter.
func (i *Inbox) Ask(subject string, m *Mailbox, attempt int64, data []byte) error {
	i.mu.Lock()
	i.open[m.token] = m
	m.tally.of(attempt).asked++
	i.mu.Unlock()
	msg := &nats.Msg{
		Subject: subject, Reply: fmt.Sprint(i.prefix, m.token, ".", attempt), Data: data,
		Header: m.Trace.Header(nil),
	}
	if err := i.nc.PublishMsg(msg); err != nil {
		return fmt.Errorf("worldengine: the request could not be sent: %w", err)
	}
	return nil
}

// Forget implements ReplyRouter.
func (i *Inbox) Forget(m *Mailbox, gaveUp bool) {
	if !i.end(m, gaveUp) {
		return
	}
	for { // what came unread
		select {
		case r := <-m.replies:
			if r.Msg != nil {
				i.unused.Late(m.Identity, r.Msg)
			}
		default:
			return
		}
	}
}

// end closes and remembers a mailbox, and reports whether it had sent requests and was given up.
func (i *Inbox) end(m *Mailbox, gaveUp bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, asked := i.open[m.token]
	delete(i.open, m.token)
	if asked {
		i.ended.Add(m.token, endedMailbox{m.Identity, gaveUp, m.tally})
	}
	return asked && gaveUp
}

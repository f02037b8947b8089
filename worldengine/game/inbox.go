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

// ReplyRouter sends the requests of applications, and takes the answers of plugins to them.
type ReplyRouter interface {
	// Ask sends a request of a logical attempt. The answer comes to the mailbox.
	Ask(subject string, m *Mailbox, attempt int64, data []byte) error
	// Forget ends a mailbox. With gaveUp it is remembered for a while that its answers are late.
	Forget(m *Mailbox, gaveUp bool)
	Close()
}

// Identity names the application that a mailbox is of.
type Identity struct {
	TownID, HandoffID, RunID string
	// Trace goes into the headers of its requests.
	Trace trace.Context
}

// Applied reports whether a reply says that the command was applied.
func (i Identity) Applied(msg *nats.Msg) bool {
	answer, err := apply.ParseAnswer(msg.Data, i.HandoffID, schemas.Limits{})
	return err == nil && answer.Status == apply.Applied
}

// Mailbox takes the replies to the requests of one application.
type Mailbox struct {
	Identity
	token   string // of the reply subject
	replies chan Reply
	tally   *tally
}

// tally counts, for each attempt of an application, the requests that were sent and the answers
// that say that the command is applied. The inbox's lock guards it.
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

// tooMany counts an answer, and reports whether there are now more answers that say that the
// command is applied than there were requests: a plugin answers each request once.
func (t *tally) tooMany(r Reply) bool {
	if !bytes.Contains(r.Msg.Data, saysApplied) {
		return false
	}
	of := t.of(r.Attempt)
	of.applied++
	return of.asked > 0 && of.applied > of.asked
}

// saysApplied stands in every answer with the status applied, and hardly in another one:
// UnusedAnswers.Double reads the answer.
var saysApplied = []byte(`"` + string(apply.Applied) + `"`)

// Reply is a message for an application, to a request of a logical attempt. Look has no message: it
// asks who waits to look at the log, which has gone on with the command.
type Reply struct {
	Msg     *nats.Msg
	Attempt int64
	Look    bool
}

// maxReplies is how many replies wait in a mailbox. What does not fit is lost; the request is sent
// again.
const maxReplies = 64

// NewMailbox returns an empty mailbox of an application.
func NewMailbox(of Identity) *Mailbox {
	return &Mailbox{Identity: of, token: nuid.Next(), replies: make(chan Reply, maxReplies),
		tally: new(tally)}
}

// Next returns the next reply, or the zero reply when none comes for so long.
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

// Inbox receives what plugins answer. An application has one reply subject for the requests of each
// attempt, so that an answer counts whichever of them it is to, and however late: that a command is
// applied counts in whatever attempt, and is an alert where it was given up.
type Inbox struct {
	nc     *nats.Conn
	prefix string
	sub    *nats.Subscription
	unused UnusedAnswers

	mu    sync.Mutex
	open  map[string]*Mailbox
	ended *recent.Map[string, endedMailbox]
}

// UnusedAnswers takes the answers that change nothing. An answer may be malformed.
type UnusedAnswers struct {
	// Late gets what arrives for an application that was given up.
	Late func(Identity, *nats.Msg)
	// Double gets an answer that a command is applied of which there are more than requests.
	Double func(Identity, *nats.Msg)
}

// endedMailbox is what is remembered of a mailbox.
type endedMailbox struct {
	Identity
	gaveUp bool
	tally  *tally
}

// maxLate bounds how many ended applications are remembered.
const maxLate = 4096

// OpenInbox subscribes. unused takes what arrives too late, and what is one answer too many.
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
// before, and whether this is one answer too many. It holds the lock until then, so that Forget
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

// end closes and remembers a mailbox, and reports whether it was asked for and given up.
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

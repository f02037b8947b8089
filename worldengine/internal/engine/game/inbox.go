package game

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/recent"
	"worldengine/worldengine/internal/store/alerts"
)

// Router sends the requests of executions to plugins, and delivers the answers to them.
type Router interface {
	// Ask sends a request of a logical attempt.
	Ask(subject string, x *Execution, attempt int64, data []byte) error
	// Forget ends the delivery to an execution. If gaveUp is set, later answers to its requests
	// count as late, for a while.
	Forget(x *Execution, gaveUp bool)
}

// Reply is an answer to a request of a logical attempt: a plugin's, NATS's or a console's.
type Reply struct {
	Msg     *nats.Msg
	Attempt int64
	console *consoleReply
}

// Inbox is the Router of a connection, from Start to Stop. All requests of an attempt have one reply subject, so an
// answer to any of them counts; "applied" counts in later attempts too. An answer "applied" that
// changes nothing raises an alert: it is late if the execution was given up, and double if there
// are more such answers than requests.
type Inbox struct {
	nc     *nats.Conn
	prefix string
	sub    *nats.Subscription
	alerts Alerts

	mu    sync.Mutex
	open  map[string]*requests // by the token of the reply subject
	ended *recent.Map[string, *requests]
}

// requests counts the requests for one command, and the answers "applied", by their logical
// attempt. The inbox's lock guards the counts.
type requests struct {
	about         alerts.About
	to            *Execution
	gaveUp        bool
	sent, applied map[int64]int
}

// countApplied counts an answer "applied", and reports whether there are now more of them than requests:
// a plugin answers each request once.
func (r *requests) countApplied(reply Reply) bool {
	if !bytes.Contains(reply.Msg.Data, saysApplied) {
		return false
	}
	r.applied[reply.Attempt]++
	requestCount := r.sent[reply.Attempt]
	return requestCount > 0 && r.applied[reply.Attempt] > requestCount
}

// saysApplied is in every answer with the status applied, and seldom in others. So reportApplied
// still has to parse the answer.
var saysApplied = []byte(`"` + string(apply.Applied) + `"`)

// maxLate bounds the ended executions that are remembered.
const maxLate = 4096

// NewInbox returns the Inbox of a connection, which gets the answers of plugins from Start on.
func NewInbox(nc *nats.Conn, raise Alerts) *Inbox {
	i := newInbox(nc.NewInbox()+".", raise)
	i.nc = nc
	return i
}

func newInbox(prefix string, raise Alerts) *Inbox {
	return &Inbox{
		prefix: prefix, alerts: raise, open: map[string]*requests{},
		ended: recent.NewMap[string, *requests](maxLate),
	}
}

// Start subscribes to the answers of plugins.
func (i *Inbox) Start(context.Context) (err error) {
	if i.sub, err = i.nc.Subscribe(i.prefix+"*.*", i.deliver); err != nil {
		return fmt.Errorf("game: replies of plugins: %w", err)
	}
	return nil
}

// Stop ends the subscription.
func (i *Inbox) Stop(context.Context) error {
	_ = i.sub.Unsubscribe() // fails only when the connection is gone
	return nil
}

// deliver delivers a reply, and raises an alert about one that changes nothing. It holds the lock while
// it delivers, so that Forget finds every reply that was delivered before the end.
func (i *Inbox) deliver(msg *nats.Msg) {
	token, number, _ := strings.Cut(strings.TrimPrefix(msg.Subject, i.prefix), ".")
	attempt, _ := strconv.ParseInt(number, 10, 64) // 0, which no attempt has, on an error
	reply := Reply{Msg: msg, Attempt: attempt}
	i.mu.Lock()
	r := i.open[token]
	if r != nil {
		r.to.Deliver(reply)
	} else if r, _ = i.ended.Get(token); r == nil {
		i.mu.Unlock()
		return
	}
	late, double := r.gaveUp, r.countApplied(reply)
	i.mu.Unlock()
	if late {
		i.reportApplied(r.about, msg, alerts.LateAnswer)
	}
	if double {
		i.reportApplied(r.about, msg, alerts.DoubleAnswer)
	}
}

// reportApplied raises an alert if a reply says that the command was applied: the world and the
// engine may differ, so an operator has to look.
func (i *Inbox) reportApplied(about alerts.About, msg *nats.Msg, text alerts.Template) {
	answer, err := apply.ParseAnswer(msg.Data, about.HandoffID, schemas.Limits{})
	if err == nil && answer.Status == apply.Applied {
		i.alerts.RaiseOnce(text.Alert(about))
	}
}

// Ask implements Router.
func (i *Inbox) Ask(subject string, x *Execution, attempt int64, data []byte) error {
	i.mu.Lock()
	i.expect(x).sent[attempt]++
	i.mu.Unlock()
	msg := &nats.Msg{
		Subject: subject, Reply: fmt.Sprint(i.prefix, x.replyToken, ".", attempt), Data: data,
		Header: x.Trace.Inject(nil),
	}
	if err := i.nc.PublishMsg(msg); err != nil {
		return fmt.Errorf("game: the request could not be sent: %w", err)
	}
	return nil
}

// expect returns the requests of an execution, to which replies are delivered from now on. The
// caller holds the lock.
func (i *Inbox) expect(x *Execution) *requests {
	r := i.open[x.replyToken]
	if r == nil {
		r = &requests{about: x.About, to: x, sent: map[int64]int{}, applied: map[int64]int{}}
		i.open[x.replyToken] = r
	}
	return r
}

// Forget implements Router.
func (i *Inbox) Forget(x *Execution, gaveUp bool) {
	i.mu.Lock()
	r := i.open[x.replyToken]
	if r != nil {
		delete(i.open, x.replyToken)
		r.to, r.gaveUp = nil, gaveUp
		i.ended.Add(x.replyToken, r)
	}
	i.mu.Unlock()
	for r != nil && gaveUp { // replies that arrived and were not read
		select {
		case reply := <-x.replies:
			if reply.Msg != nil {
				i.reportApplied(x.About, reply.Msg, alerts.LateAnswer)
			}
		default:
			return
		}
	}
}

// isNoResponders reports whether msg is NATS's answer that no plugin is subscribed.
func isNoResponders(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

package worldengine

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// postbox is what an application needs to ask a plugin.
type postbox interface {
	// ask sends a request of an application. The answer comes to its replies.
	ask(subject string, a *applying, data []byte) error
	// forget ends the replies of an application. With gaveUp they are remembered for a while.
	forget(a *applying, gaveUp bool)
	close()
}

// inbox receives what plugins answer. An application has one reply subject for the requests of each
// attempt, so that an answer counts whichever of them it is to, and however late: that a command is
// applied counts in whatever attempt, and is an alert where it was given up.
type inbox struct {
	nc     *nats.Conn
	prefix string
	sub    *nats.Subscription
	late   func(*lateAnswer, *nats.Msg)

	mu    sync.Mutex
	open  map[string]*applying
	ended map[string]*lateAnswer
	order []string // the keys of ended, the oldest first
}

// lateAnswer is an application that was given up, whose answer may still come.
type lateAnswer struct{ townID, handoffID, runID string }

// maxLate bounds how many given-up applications are remembered.
const maxLate = 4096

// openInbox subscribes. late is called for what arrives for an application that was given up.
func openInbox(nc *nats.Conn, late func(*lateAnswer, *nats.Msg)) (*inbox, error) {
	i := &inbox{
		nc: nc, prefix: nc.NewInbox() + ".", late: late,
		open: map[string]*applying{}, ended: map[string]*lateAnswer{},
	}
	var err error
	if i.sub, err = nc.Subscribe(i.prefix+"*.*", i.take); err != nil {
		return nil, fmt.Errorf("worldengine: replies of plugins: %w", err)
	}
	return i, nil
}

func (i *inbox) close() { _ = i.sub.Unsubscribe() } // fails only when the connection is gone

func (i *inbox) take(msg *nats.Msg) {
	token, number, _ := strings.Cut(strings.TrimPrefix(msg.Subject, i.prefix), ".")
	attempt, _ := strconv.ParseInt(number, 10, 64) // 0, which is no attempt, where it is no number
	i.mu.Lock()
	a, ended := i.open[token], i.ended[token]
	i.mu.Unlock()
	switch {
	case a != nil:
		select {
		case a.replies <- reply{msg, attempt}:
		default: // it has more answers than it can read, and asks again
		}
	case ended != nil:
		i.late(ended, msg)
	}
}

func (i *inbox) ask(subject string, a *applying, data []byte) error {
	i.mu.Lock()
	i.open[a.token] = a
	i.mu.Unlock()
	if err := i.nc.PublishRequest(subject, fmt.Sprint(i.prefix, a.token, ".", a.pending.Attempt), data); err != nil {
		return fmt.Errorf("worldengine: the request could not be sent: %w", err)
	}
	return nil
}

func (i *inbox) forget(a *applying, gaveUp bool) {
	l := &lateAnswer{townID: a.town, handoffID: a.handoff.HandoffID, runID: a.runID}
	if !i.end(a.token, l, gaveUp) {
		return
	}
	for { // what came while nobody looked
		select {
		case r := <-a.replies:
			i.late(l, r.msg)
		default:
			return
		}
	}
}

// end moves an application from open to ended, and says whether it is remembered there.
func (i *inbox) end(token string, l *lateAnswer, gaveUp bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, asked := i.open[token]
	delete(i.open, token)
	if !asked || !gaveUp {
		return false
	}
	i.ended[token] = l
	if i.order = append(i.order, token); len(i.order) > maxLate {
		delete(i.ended, i.order[0])
		i.order = i.order[1:]
	}
	return true
}

// isNoResponders says whether a reply is NATS's, that nobody is subscribed.
func isNoResponders(msg *nats.Msg) bool {
	return len(msg.Data) == 0 && msg.Header.Get("Status") == "503"
}

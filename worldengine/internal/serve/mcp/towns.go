package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/messages"
)

// noticeInterval is the least time between two notices of one town to one session.
const noticeInterval = 500 * time.Millisecond

// followInterval is the pause before the log is followed again after an error.
const followInterval = time.Second

// TownNotifier notifies sessions of towns that have changed. While there are subscriptions it follows the log of the
// world, once for all sessions. A notice has the town's URI alone: the session reads the town with the
// rights of its own user. It is safe for concurrent use.
type TownNotifier struct {
	client *client.Client
	logger *slog.Logger

	mu   sync.Mutex
	open map[string]map[*sdk.Server]*subscription // by the id of the town
	stop context.CancelFunc                       // ends following; nil while there is no subscription
	work sync.WaitGroup
}

// subscription is the wish of a session to hear of a town. Towns.mu guards it.
type subscription struct {
	server    *sdk.Server
	uri       string
	scheduled bool // a notice is scheduled, or on its way
	again     bool // the town has changed since
	ended     bool
}

// NewTownNotifier returns a notifier that reads the log through a client, which may read all towns that its sessions
// may subscribe to.
func NewTownNotifier(c *client.Client, logger *slog.Logger) *TownNotifier {
	return &TownNotifier{client: c, logger: logger, open: map[string]map[*sdk.Server]*subscription{}}
}

// errTooMany is the answer to a subscription beyond maxSubscriptions.
var errTooMany = fmt.Errorf("%w: this session has as many subscriptions as it may: unsubscribe from a town", errArgument)

// maxSubscriptions bounds the subscriptions of one session.
const maxSubscriptions = 100

// subscribe adds a subscription. When it returns, every later change of the town is noticed.
func (t *TownNotifier) subscribe(ctx context.Context, server *sdk.Server, townID, uri string) error {
	cursor, err := t.lockCursor(ctx)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	if t.count(server) >= maxSubscriptions {
		return errTooMany
	}
	if t.stop == nil {
		following, stop := context.WithCancel(context.WithoutCancel(ctx))
		t.stop = stop
		t.work.Go(func() { t.follow(following, cursor) })
	}
	if t.open[townID] == nil {
		t.open[townID] = map[*sdk.Server]*subscription{}
	}
	if t.open[townID][server] == nil {
		t.open[townID][server] = &subscription{server: server, uri: uri}
	}
	return nil
}

// lockCursor returns with t.mu locked and, if nothing follows the log yet, with the cursor to follow it from. It
// asks for the cursor without the lock.
func (t *TownNotifier) lockCursor(ctx context.Context) (cursor string, err error) {
	for {
		t.mu.Lock()
		if t.stop != nil || cursor != "" {
			return cursor, nil
		}
		t.mu.Unlock()
		end, err := t.client.EventList(ctx, messages.EventListRequest{})
		if err != nil {
			return "", err
		}
		cursor = end.Cursor
	}
}

// count returns the number of a session's subscriptions. t.mu is locked.
func (t *TownNotifier) count(server *sdk.Server) (n int) {
	for _, sessions := range t.open {
		if sessions[server] != nil {
			n++
		}
	}
	return n
}

// unsubscribe removes a subscription.
func (t *TownNotifier) unsubscribe(server *sdk.Server, townID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(server, townID)
}

// forget removes all subscriptions of a session.
func (t *TownNotifier) forget(server *sdk.Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for townID := range t.open {
		t.remove(server, townID)
	}
}

// remove removes a subscription, and ends following after the last one. t.mu is locked.
func (t *TownNotifier) remove(server *sdk.Server, townID string) {
	if s := t.open[townID][server]; s != nil {
		s.ended = true
	}
	delete(t.open[townID], server)
	if len(t.open[townID]) == 0 {
		delete(t.open, townID)
	}
	if len(t.open) == 0 && t.stop != nil {
		t.stop()
		t.stop = nil
	}
}

// Close ends all subscriptions.
func (t *TownNotifier) Close() {
	t.mu.Lock()
	for townID, sessions := range t.open {
		for server := range sessions {
			t.remove(server, townID)
		}
	}
	t.mu.Unlock()
	t.work.Wait()
}

// follow notices the changes after a cursor until ctx ends. After a loss of commits each town counts as
// changed.
func (t *TownNotifier) follow(ctx context.Context, after string) {
	for ctx.Err() == nil {
		for commit, err := range t.client.Commits(ctx, client.Follow{After: after}) {
			if _, lost := errors.AsType[*client.LossError](err); lost {
				t.changedAll()
			} else if err != nil {
				t.logger.Warn("changes of towns are not noticed for subscriptions; will try again", "error", err)
				break
			}
			if commit.Cursor != "" {
				after = commit.Cursor
			}
			if commit.Revision != 0 {
				t.changed(commit.TownID)
			}
		}
		_ = backoff.Sleep(ctx, followInterval)
	}
}

// changed schedules the notices of a town.
func (t *TownNotifier) changed(townID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.open[townID] {
		t.schedule(s)
	}
}

func (t *TownNotifier) changedAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sessions := range t.open {
		for _, s := range sessions {
			t.schedule(s)
		}
	}
}

// schedule schedules a notice, unless one is on its way. t.mu is locked.
func (t *TownNotifier) schedule(s *subscription) {
	if s.again = s.scheduled; !s.scheduled {
		s.scheduled = true
		time.AfterFunc(noticeInterval, func() { t.notify(s) })
	}
}

// notify sends a session the notice that a town has changed.
func (t *TownNotifier) notify(s *subscription) {
	t.mu.Lock()
	s.again = false // what the session reads from now on has the change
	ended := s.ended
	t.mu.Unlock()
	if !ended {
		_ = s.server.ResourceUpdated(context.Background(), &sdk.ResourceUpdatedNotificationParams{URI: s.uri})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.scheduled = false; s.again && !s.ended {
		t.schedule(s)
	}
}

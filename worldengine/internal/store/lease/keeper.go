package lease

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/wakeup"
)

// renewWindow is how much earlier a lease is renewed than it must be, to be renewed with others.
const renewWindow = 100 * time.Millisecond

// Keeper renews the leases of a server, side by side from one goroutine, which runs while
// there are any. A renewal that fails, or gets no answer within a second, delays no other one. A Keeper
// is safe for concurrent use.
type Keeper struct {
	js      jetstream.JetStream
	changed wakeup.Channel // leases has changed

	mu      sync.Mutex
	leases  map[*Lease]struct{}
	running bool
}

// NewKeeper returns a keeper that renews leases over a connection.
func NewKeeper(js jetstream.JetStream) *Keeper {
	return &Keeper{js: js, changed: wakeup.New(), leases: map[*Lease]struct{}{}}
}

// add renews a lease from now on, until it is lost or dropped.
func (k *Keeper) add(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.nextRenewal = time.Now().Add(renewInterval)
	k.leases[l] = struct{}{}
	if !k.running {
		k.running = true
		go k.run()
	}
	k.changed.Wake()
}

// drop ends the renewals of a lease. Once none is under way, its lost is closed.
func (k *Keeper) drop(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.dropped = true
	k.changed.Wake()
}

// run renews leases as long as there are any.
func (k *Keeper) run() {
	for {
		due, next, held := k.collectDue()
		switch {
		case !held:
			return
		case len(due) > 0:
			k.renew(due)
		default:
			timer := time.NewTimer(time.Until(next))
			select {
			case <-k.changed:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// collectDue ends the leases that are dropped or no longer valid, and marks those to renew now as being renewed. It
// returns these, the time at which there may be others, and whether any lease is held. A lease whose last renewal failed
// is reacquired by a goroutine of its own, and is not among them.
func (k *Keeper) collectDue() (due []*Lease, next time.Time, held bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	next = now.Add(renewInterval)
	for l := range k.leases {
		switch {
		case l.renewing:
		case l.dropped || !l.Valid():
			delete(k.leases, l)
			close(l.lost)
		case l.nextRenewal.Before(now.Add(renewWindow)) && l.renewalFailed: // no other lease waits for this one's bucket
			l.renewing = true
			go k.reacquire(l)
		case l.nextRenewal.Before(now.Add(renewWindow)):
			l.renewing = true
			due = append(due, l)
		case l.nextRenewal.Before(next):
			next = l.nextRenewal
		}
	}
	for l := range k.leases {
		if ends := now.Add(l.remaining()); !l.renewing && ends.Before(next) {
			next = ends
		}
	}
	k.running = len(k.leases) > 0
	return due, next, k.running
}

// renew renews leases, and waits for the answers until the first of the leases would end.
func (k *Keeper) renew(due []*Lease) {
	asked, within := time.Now(), renewInterval
	answers := make([]jetstream.PubAckFuture, len(due))
	for i, l := range due {
		within = min(within, l.remaining())
		answers[i], _ = k.js.PublishMsgAsync(l.renewal(), jetstream.WithRetryAttempts(0))
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for i, l := range due {
		if ack := awaitAck(ctx, answers[i]); ack != nil {
			l.renewed(asked, ack.Sequence)
			k.finishRenewal(l, asked.Add(renewInterval), false)
		} else {
			go k.reacquire(l)
		}
	}
}

// renewal is the message that renews a lease, if no other server has acquired it.
func (l *Lease) renewal() *nats.Msg {
	return &nats.Msg{
		Subject: "$KV." + layout.WriterBucket(l.elector.World) + "." + key,
		Data:    []byte(l.elector.Holder),
		Header: nats.Header{
			jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(l.revision, 10)},
		},
	}
}

// awaitAck returns the answer to a renewal; nil if it failed, or is not there when ctx has ended.
func awaitAck(ctx context.Context, future jetstream.PubAckFuture) *jetstream.PubAck {
	if future == nil { // the renewal was not sent
		return nil
	}
	select {
	case ack := <-future.Ok():
		return ack
	case <-future.Err():
	case <-ctx.Done():
		select { // it may have come while another lease was waited for
		case ack := <-future.Ok():
			return ack
		default:
		}
	}
	return nil
}

// reacquire acquires a lease again that was not renewed, unless another server has it: the bucket may be
// gone, or an earlier renewal may have succeeded without an answer.
func (k *Keeper) reacquire(l *Lease) {
	ctx, cancel := context.WithTimeout(context.Background(), min(renewInterval, l.remaining()))
	defer cancel()
	asked, e := time.Now(), l.elector
	e.bucket = nil
	revision, err := e.request(ctx, e.claim)
	next := asked.Add(renewInterval)
	switch {
	case err == nil:
		l.renewed(asked, revision)
	case errors.Is(err, ErrHeld):
		l.until.Store(nil)
	default:
		next = time.Now().Add(tryInterval)
		e.Logger.Warn("the writer's lease is not renewed; will try again", "error", err,
			"left", l.remaining())
	}
	k.finishRenewal(l, next, err != nil)
}

// finishRenewal records that no renewal of a lease is under way, whether the last one failed, and when the next
// one is.
func (k *Keeper) finishRenewal(l *Lease, next time.Time, failed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.renewing, l.nextRenewal, l.renewalFailed = false, next, failed
	k.changed.Wake()
}

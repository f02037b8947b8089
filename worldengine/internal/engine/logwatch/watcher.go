// Package logwatch watches the log of a world while its writer serves: whether it answers, whether it is the
// known log and has all that it must keep, and whether there is room. It raises the alerts about these.
package logwatch

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/wakeup"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// Config configures a Watcher, which calls its functions from Start on. Every member must be set.
type Config struct {
	Conn     *nats.Conn // that the log is reached over
	Log      *records.Log
	Index    *index.Index
	Alerts   *alerts.Alerts
	Replicas *Replicas
	Now      func() time.Time
	Logger   *slog.Logger
	// Forget drops the caches of the log: another log, or a leader with other messages, may answer.
	Forget func()
	// RereadPause reads the pause of the world again, since a signal that got no answer may be stored.
	RereadPause func(ctx context.Context) error
	// HasLease reports whether this server still has the writer's lease.
	HasLease func() bool
}

// Watcher watches the log of a world, from Start to Stop. It is safe for concurrent use.
type Watcher struct {
	Config

	// Inputs of watch.
	election wakeup.Channel // the log may have another leader
	noRoom   wakeup.Channel // the storage, or the history of a town, has become full
	// unverified is the input of verifyOnDoubt: the log has another leader, or NATS was away.
	unverified wakeup.Channel

	lost        atomic.Pointer[error]
	silentSince atomic.Pointer[time.Time] // when the first of the unanswered questions was asked; nil if the log answers
	fullSince   atomic.Pointer[time.Time] // when the storage became full; nil if it has room
	histories   sync.Map                  // by town, the *fullHistory of each that has no room
	reported    sync.Map                  // by town token, the damage that was reported; see ReportDamage

	// The findings of the last look, of watch alone.
	leader      *string // the id of the log's leader; nil before the first answer
	limitError  error
	suspect     bool // the log may be another one
	urgentLooks int  // questions that follow after urgentInterval
	recalled    bool // what earlier engines found full is known
	// alertsChecked is when the stream of alerts was looked at last.
	alertsChecked time.Time
	// undelivered is how many messages the log counts and did not deliver; of verifyOnDoubt alone.
	undelivered uint64

	elections *nats.Subscription // nil if the log has one replica
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// New returns a Watcher, which reports damage from then on, and watches after Start.
func New(config Config) *Watcher {
	return &Watcher{
		Config: config, election: wakeup.New(), noRoom: wakeup.New(), unverified: wakeup.New(),
	}
}

// Start starts watching. NATS says over Conn when the log of several replicas has another leader; the
// reconnects of Conn are noticed: so no election is missed for longer than lookInterval.
func (w *Watcher) Start(context.Context) (err error) {
	if w.Log.Stream.CachedInfo().Config.Replicas > 1 {
		w.elections, err = w.Conn.Subscribe(commitlog.ElectionSubject(w.Log.World), func(*nats.Msg) { w.election.Wake() })
		if err != nil {
			return err
		}
	}
	w.Replicas.raise(w.Alerts)
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	w.running.Go(func() { w.watch(ctx) })
	w.running.Go(func() { w.verifyOnDoubt(ctx) })
	return nil
}

// Stop ends watching.
func (w *Watcher) Stop(context.Context) error {
	if w.elections != nil {
		_ = w.elections.Unsubscribe() // fails only when the connection is gone
	}
	w.stop()
	w.running.Wait()
	return nil
}

// watch looks at the log until ctx is done: at intervals, and at once after each input. What may take minutes is
// left to verifyOnDoubt, except the comparison of the nodes if the log lacks messages: until it is over, nothing
// is committed.
func (w *Watcher) watch(ctx context.Context) {
	reconnected := w.Conn.StatusChanged(nats.CONNECTED)
	defer w.Conn.RemoveStatusListener(reconnected)
	for {
		interval := w.look(ctx)
		select {
		case <-reconnected:
			w.doubt()
		case <-w.Log.Continuity.Suspicions():
			w.doubt()
		case <-w.election:
			w.urgentLooks = electionQuestions
		case <-w.noRoom:
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
	}
}

// Lost returns an ErrLogLost while the log lacks messages that this server has committed or read; nothing is
// committed then. Otherwise it returns nil.
func (w *Watcher) Lost() error {
	if lost := w.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// Silence returns the time since the first of the questions was asked that the log has not answered; 0 if it
// answered the last one.
func (w *Watcher) Silence() time.Duration {
	if since := w.silentSince.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}

func (w *Watcher) townSubject(token string) string { return layout.LogSubject(w.Log.World, token) }

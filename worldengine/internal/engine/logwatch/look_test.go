package logwatch

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
)

// newWatcher returns a Watcher of a log without connection, whose alerts go to raised.
func newWatcher(log *commitlog.Log, raised func(runevents.Alert)) *Watcher {
	logger := slog.New(slog.DiscardHandler)
	w := New(Config{
		Conn: new(nats.Conn), Log: &records.Log{Log: log}, Now: time.Now, Logger: logger,
		Alerts:      alerts.New(new(alertStream), alerts.Config{Logger: logger, Now: time.Now, Notify: raised}),
		RereadPause: func(context.Context) error { return nil },
	})
	w.recalled = true
	return w
}

// alertStream is a NATS that has the stream of alerts, unless it was removed.
type alertStream struct {
	jetstream.JetStream
	removed atomic.Bool
}

func (s *alertStream) Stream(context.Context, string) (jetstream.Stream, error) {
	if s.removed.Load() {
		return nil, jetstream.ErrStreamNotFound
	}
	return emptyStream{}, nil
}

// emptyStream is a stream about which nothing is known.
type emptyStream struct{ jetstream.Stream }

func (emptyStream) CachedInfo() *jetstream.StreamInfo { return new(jetstream.StreamInfo) }

// run has a Watcher watch its log until stop.
func run(t *testing.T, w *Watcher) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.watch(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// away is a log that may be silent.
type away struct {
	commitlog.Store
	silent atomic.Bool
}

func (a *away) End(ctx context.Context) (uint64, error) {
	if a.silent.Load() {
		<-ctx.Done()
	}
	return 1, ctx.Err()
}

// The silence of a log is noticed to end within 3 s, so an election of 11 s is no silence of 15 s.
func TestWatcher_Silence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &away{}
		w := newWatcher(&commitlog.Log{Store: log}, nil)
		stop := run(t, w)
		for outage := time.Duration(0); outage < 20*time.Second; outage += 300 * time.Millisecond {
			time.Sleep(time.Minute + outage)
			require.Zero(t, w.Silence())
			log.silent.Store(true)
			time.Sleep(outage)
			require.LessOrEqual(t, w.Silence(), outage)
			log.silent.Store(false)
			time.Sleep(urgentInterval + questionTimeout)
			synctest.Wait()
			require.Zero(t, w.Silence())
		}
		log.silent.Store(true)
		time.Sleep(lookInterval + 15*time.Second)
		require.GreaterOrEqual(t, w.Silence(), 15*time.Second)
		log.silent.Store(false)
		time.Sleep(urgentInterval + questionTimeout)
		synctest.Wait()
		require.Zero(t, w.Silence())
		stop()
	})
}

// electing is a log that has a leader, and counts the questions for its end.
type electing struct {
	commitlog.Store
	jetstream.Stream
	leader   atomic.Value // of string
	requests atomic.Int64
}

func (l *electing) End(context.Context) (uint64, error) { l.requests.Add(1); return 1, nil }

func (l *electing) CachedInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}, Cluster: &jetstream.ClusterInfo{
		Leader: l.leader.Load().(string), Replicas: []*jetstream.PeerInfo{{Name: "other", Active: time.Second}},
	}}
}

// The log is asked at once after an election, and each second for a while: a leader that was cut off still
// answers. Without elections it is asked every 10 s.
func TestWatcher_Election(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &electing{}
		log.leader.Store("first")
		w := newWatcher(&commitlog.Log{Store: log, Stream: log}, nil)
		stop := run(t, w)
		synctest.Wait()
		<-w.unverified
		time.Sleep(10*lookInterval + time.Second)
		require.EqualValues(t, 11, log.requests.Load())
		w.election.Wake()
		synctest.Wait()
		require.EqualValues(t, 12, log.requests.Load())
		require.Empty(t, w.unverified, "the old leader has answered")
		log.leader.Store("second")
		time.Sleep(urgentInterval)
		synctest.Wait()
		require.Len(t, w.unverified, 1)
		time.Sleep(10 * urgentInterval)
		synctest.Wait()
		require.EqualValues(t, 12+electionQuestions, log.requests.Load())
		stop()
	})
}

// The removal of the stream of alerts is noticed without an alert, once, as long as the log is the known one.
func TestWatcher_AlertsRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var raised []runevents.AlertCode
		stream, log := &alertStream{}, &replaced{}
		w := newWatcher(&commitlog.Log{Store: log, Stream: log}, nil)
		w.Replicas, w.Forget, w.Log.Continuity.Missing = &Replicas{}, func() {}, log.missing
		w.Alerts = alerts.New(stream, alerts.Config{Logger: w.Logger, Now: time.Now, Notify: func(a runevents.Alert) {
			raised = append(raised, a.Code)
		}})
		stop := run(t, w)
		defer stop()
		within := alertsInterval + lookInterval + questionTimeout
		for range 2 {
			time.Sleep(within)
			synctest.Wait()
			require.Empty(t, raised)
			stream.removed.Store(true)
			time.Sleep(3 * within)
			synctest.Wait()
			require.Equal(t, []runevents.AlertCode{runevents.AlertsLost}, raised)
			stream.removed.Store(false)
			time.Sleep(within)
			synctest.Wait()
			raised = nil
		}
		log.removed.Store(true)
		stream.removed.Store(true)
		time.Sleep(3 * within)
		synctest.Wait()
		require.NotContains(t, raised, runevents.AlertsLost, "the whole world was removed")
	})
}

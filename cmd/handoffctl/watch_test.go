package main

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/access"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// Ctrl-C ends it cleanly after what came.
func TestWatch_End(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.ok("new", threatened, "talk", "casual"), "send", "-").status)
	ctx, cancel := context.WithCancel(t.Context())
	out := &signalled{cancel: cancel, after: 14}
	var errs strings.Builder
	status := c.exec(ctx, strings.NewReader(""), out, &errs, "watch", "--since", "1h")
	assert.Equal(t, exitOK, status, errs.String())
	assert.Equal(t, 14, strings.Count(out.String(), "\n"), "the date, three puts and ten events")
}

// signalled is a terminal at which Ctrl-C is pressed after some lines.
type signalled struct {
	strings.Builder
	cancel context.CancelFunc
	after  int
}

func (s *signalled) Write(line []byte) (int, error) {
	if s.after--; s.after == 0 {
		s.cancel()
	}
	return s.Builder.Write(line)
}

// From now on means from the start of the watch on, also if the server went away meanwhile. Ctrl-C
// ends it at once, also while the server is away.
func TestWatch_Restart(t *testing.T) {
	t.Parallel()
	config := server.Config{
		Listen: natstest.FreeAddress(t), Data: t.TempDir(), Sync: server.SyncInterval,
		World: worlds.Frontier, Logger: slog.New(slog.DiscardHandler),
	}
	start := func() (stop func()) {
		srv, err := server.Start(context.Background(), config)
		require.NoError(t, err)
		return sync.OnceFunc(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			assert.NoError(t, srv.Close(ctx))
		})
	}
	stop := start()
	c := &cli{t: t, env: map[string]string{"NATS_URL": "nats://" + config.Listen}}
	ctx, cancel := context.WithCancel(t.Context())
	w := c.start(ctx, strings.NewReader(""), "watch")
	require.Eventually(t, func() bool { // until it has begun
		c.ok("town", "patch", threatened, c.file(`{"pressure": {"hope": 0.25}}`))
		return strings.Contains(w.out.String(), "TownPut")
	}, time.Minute, 5*time.Millisecond)
	stop()
	stop = start()
	defer func() { stop() }()
	sent := c.send(c.handoff())
	w.says(&w.out, "RunCompleted")
	require.Equal(t, 10, strings.Count(w.out.String(), sent.RunID), w.out.String())
	require.Empty(t, w.errs.String())
	stop()
	cancel()
	require.Equal(t, exitOK, w.end())
}

func TestEventView_Dates(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	view := &eventView{app: &app{out: &out}}
	noon := time.Date(2026, 2, 16, 12, 0, 0, 0, time.Local)
	for i, event := range []runevents.EventType{"A", "B", "C", "D"} {
		at := noon.Add(time.Duration(i/2)*24*time.Hour + time.Duration(i)*time.Second)
		e := runevents.Record{PersistedAt: runevents.Timestamp(at), RunSeq: 1,
			Write: runevents.Write{RunID: "run", EventType: event}}
		require.NoError(t, view.printEvent([]string{"a.b", ""}[i%2], &e))
	}
	require.Regexp(t, `^2026-02-16
12:00:00.000  a.b .* A .*
12:00:01.000  - .* B .*
2026-02-17
12:00:02.000 .* C .*
12:00:03.000 .* D .*
$`, out.String())
}

// Alerts that were published while the connection was lost are not shown to who may not read the
// stream: a note says so.
func TestWatch_Gap(t *testing.T) {
	as := guarded(t)
	c := as(access.Observer)
	at, err := url.Parse(c.env["NATS_URL"])
	require.NoError(t, err)
	link := natstest.NewProxy(t, at.Host)
	c.env["NATS_URL"] = "nats://" + link.Address()
	w := c.background("watch", "--alerts", "--count", "1")
	w.says(&w.errs, "the role observer watches what is published from now on")
	link.Drop()
	w.says(&w.errs, "handoffctl: the connection was lost for ")
	w.says(&w.errs, "s: the alerts that were published meanwhile are not shown\n")
	engine := as(access.Engine)
	nc := engine.connect()
	require.Eventually(t, func() bool { // NATS may not have the new subscription yet
		assert.NoError(t, nc.Publish(wire.AlertSubject("main", "APPLY_IN_DOUBT"),
			[]byte(`{"code":"APPLY_IN_DOUBT"}`)))
		return len(w.ended) > 0
	}, time.Minute, 50*time.Millisecond)
	assert.Equal(t, exitOK, w.end())
}

// Commits that cannot be shown are told, and watch goes on.
func TestWatch_Losses(t *testing.T) {
	c := faked(t, map[string]string{"event.list": `{"commits":[{"cursor":"6","damaged":true},` +
		`{"cursor":"7","cause":"signal","events":[{"runId":"r","runSeq":1}]}],"cursor":"7"}`})
	w := c.background("watch", "--count", "1")
	assert.Equal(t, exitOK, w.end())
	assert.Contains(t, w.errs.String(), "between 7 and 6 are not shown: the commit cannot be read")
	assert.Equal(t, 1, strings.Count(w.out.String(), " r  1  "))
}

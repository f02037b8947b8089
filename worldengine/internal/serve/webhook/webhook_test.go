package webhook

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/backoff"
)

var alert = runevents.Alert{
	Code: runevents.PluginAbsent, Severity: runevents.P2, Message: `Town "<@oak>" has had no plugin.`,
}

// hook is an address that answers with what answer returns, and keeps the bodies.
func hook(t *testing.T, answer func(n int64, w http.ResponseWriter)) (address string, bodies chan string) {
	t.Helper()
	bodies = make(chan string, 1_000)
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		answer(n.Add(1), w)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/s3cret", bodies
}

func open(t *testing.T, format Format, log io.Writer, addresses ...string) *Sender {
	t.Helper()
	s, err := start(Config{URLs: addresses, Format: format,
		Logger: slog.New(slog.NewTextHandler(log, nil))},
		backoff.Backoff{Min: time.Millisecond, Max: time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(t.Context()) })
	return s
}

func TestSender_Formats(t *testing.T) {
	t.Parallel()
	for format, want := range map[Format]string{
		JSON: `{"world":"main","text":"P2 PLUGIN_ABSENT in world main: Town \"<@oak>\" has had no plugin.",` +
			`"alert":`,
		Discord: `{"content":"P2 PLUGIN_ABSENT in world main: Town \"<@oak>\" has had no plugin.",` +
			`"allowed_mentions":{"parse":[]}}`,
		Slack: `{"text":"P2 PLUGIN_ABSENT in world main: Town \"&lt;@oak&gt;\" has had no plugin."}`,
	} {
		address, bodies := hook(t, func(_ int64, w http.ResponseWriter) {
			w.WriteHeader(http.StatusNoContent)
		})
		s := open(t, format, io.Discard, address)
		s.World("main").Alert(alert)
		require.Contains(t, <-bodies, want, format)
	}
}

// Each message leads to the page of the console that shows it, also if its text is cut.
func TestMessage_Page(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message
		page string
	}{
		{message{Alert: &runevents.Alert{}}, "alerts"},
		{message{Alert: &runevents.Alert{TownID: "a"}, Towns: []string{"a", "b"}}, "alerts"},
		{message{Alert: &runevents.Alert{TownID: "oak ?"}}, "towns/oak%20%3F"},
		{message{Alert: &runevents.Alert{TownID: "oak", RunID: "0d3c"}}, "runs/0d3c"},
		{message{Approval: &pendingApproval{TownID: "oak & elm"}}, "approvals?town=oak+%26+elm"},
	} {
		c.World = "main"
		require.Equal(t, "https://engine.example/we/#/=main/"+c.page,
			pageOf("https://engine.example/we/", &c.message))
	}
	m := message{Text: strings.Repeat("x", 3000), Page: "https://engine.example/#/=main/alerts"}
	require.Contains(t, string(m.body(Discord)), `x…\nhttps://engine.example/#/=main/alerts"`)
	require.Contains(t, string(m.body(Slack)), `x\nhttps://engine.example/#/=main/alerts"`)
	require.Contains(t, string(m.body(JSON)), `"page":"https://engine.example/#/=main/alerts"`)
	require.ErrorContains(t, (&Config{Console: "engine.example"}).Validate(), "--console-url")
}

// Towns that lose their plugin together are one message. A later one, and another alert, is a message
// of its own.
func TestSender_GathersTowns(t *testing.T) {
	t.Parallel()
	address, bodies := hook(t, func(int64, http.ResponseWriter) {})
	s := open(t, JSON, io.Discard, address)
	s.wait = 50 * time.Millisecond
	absent := func(town string) {
		s.World("main").Alert(runevents.Alert{Code: runevents.PluginAbsent, Severity: runevents.P2, TownID: town,
			Message: "Town " + town + " has had no plugin."})
	}
	for _, town := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		absent(town)
	}
	s.World("main").Alert(runevents.Alert{Code: runevents.LogLost, Severity: runevents.P1, Message: "Lost."})
	require.Contains(t, <-bodies, `"P1 LOG_LOST in world main: Lost."`, "it waits for nothing")
	body := <-bodies
	require.Contains(t, body, `"text":"P2 PLUGIN_ABSENT in world main, 7 towns (a, b, c, d, e and 2 more): `+
		`Town a has had no plugin."`)
	require.Contains(t, body, `"towns":["a","b","c","d","e","f","g"]`)
	absent("h")
	require.Contains(t, <-bodies, `"text":"P2 PLUGIN_ABSENT in world main: Town h has had no plugin."`)
	s.wait = time.Hour
	absent("i")
	s.Close(t.Context())
	require.Contains(t, <-bodies, "Town i has had no plugin.", "the end waits for nothing")
}

// Towns of several worlds are a message for each world, with its name.
func TestSender_GathersByWorld(t *testing.T) {
	t.Parallel()
	address, bodies := hook(t, func(int64, http.ResponseWriter) {})
	s := open(t, JSON, io.Discard, address)
	s.wait = 50 * time.Millisecond
	for _, town := range []string{"a", "b"} {
		for _, world := range []string{"lobby", "survival"} {
			s.World(world).Alert(runevents.Alert{Code: runevents.PluginAbsent, Severity: runevents.P2,
				TownID: town, Message: "Town " + town + " has had no plugin."})
		}
	}
	both := <-bodies + <-bodies
	for _, world := range []string{"lobby", "survival"} {
		require.Contains(t, both, `{"world":"`+world+`","text":"P2 PLUGIN_ABSENT in world `+world+
			`, 2 towns (a, b): Town a has had no plugin."`)
	}
}

// A message that is not taken is tried again, before the ones behind it; each address has its own
// queue.
func TestSender_TriesAgain(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	busy, bodies := hook(t, func(n int64, w http.ResponseWriter) {
		if n < 4 {
			w.WriteHeader([]int{http.StatusTooManyRequests, http.StatusBadGateway, 408}[n-1])
		}
	})
	other, others := hook(t, func(int64, http.ResponseWriter) {})
	s := open(t, Slack, &log, busy, other)
	s.World("main").Alert(alert)
	s.World("main").Alert(runevents.Alert{Code: runevents.PluginReturned})
	for range 4 {
		require.Contains(t, <-bodies, "PLUGIN_ABSENT")
	}
	require.Contains(t, <-bodies, "PLUGIN_RETURNED")
	require.Contains(t, <-others, "PLUGIN_ABSENT")
	s.Close(t.Context())
	sent, lost := s.Stats()
	require.Equal(t, []int64{4, 0}, []int64{sent, lost})
	require.Contains(t, log.String(), "429 Too Many Requests")
	require.NotContains(t, log.String(), "s3cret")
}

// An address that refuses a message, leads elsewhere or cannot be reached costs that message alone,
// and the log names no secret of it.
func TestSender_LosesWhatIsRefused(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	refuses, _ := hook(t, func(_ int64, w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) })
	elsewhere, bodies := hook(t, func(int64, http.ResponseWriter) {})
	leads, _ := hook(t, func(_ int64, w http.ResponseWriter) {
		w.Header().Set("Location", elsewhere)
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	const nobody = "http://u:s3cret@127.0.0.1:1/s3cret"
	s := open(t, JSON, &log, refuses, leads, nobody)
	s.World("main").Alert(alert)
	s.Close(t.Context())
	sent, lost := s.Stats()
	require.Equal(t, []int64{0, 3}, []int64{sent, lost})
	require.Empty(t, bodies)
	require.Contains(t, log.String(), "404 Not Found")
	require.NotContains(t, log.String(), "s3cret")
	s.World("main").Alert(alert) // after the end
	_, lost = s.Stats()
	require.EqualValues(t, 6, lost)
}

// However long an address takes, who raises alerts never waits for it; those that do not fit are
// counted, and the end does not wait for ever.
func TestSender_NeverBlocks(t *testing.T) {
	t.Parallel()
	hanging := make(chan struct{})
	address, bodies := hook(t, func(int64, http.ResponseWriter) { <-hanging })
	t.Cleanup(func() { close(hanging) })
	s := open(t, JSON, io.Discard, address)
	s.World("main").Alert(alert)
	<-bodies
	for range QueueSize + 7 {
		s.World("main").Alert(alert)
	}
	_, lost := s.Stats()
	require.EqualValues(t, 7, lost)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Close(ctx)
	sent, lost := s.Stats()
	require.EqualValues(t, []int64{0, QueueSize + 8}, []int64{sent, lost})
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{
		{Format: JSON, URLs: []string{"https://h/s3cret", "ftp://h/s3cret"}},
		{Format: JSON, URLs: []string{"/s3cret"}}, {Format: JSON, URLs: []string{"http://h:s3cret\x7f"}},
		{Format: "xml", URLs: []string{"https://h/s3cret"}},
	} {
		err := c.Validate()
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret")
		_, err = New(c)
		require.Error(t, err)
	}
}

package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/plugin/conformance"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 12) }

var subject = wire.ApplySubject("main", "t")

func check(
	t *testing.T, nc *nats.Conn, change ...func(*conformance.Config),
) map[string]conformance.Row {
	t.Helper()
	config := conformance.Config{
		Subject: subject, Timeout: 10 * time.Second, Quiet: 20 * time.Millisecond,
		Town: town.NewState(&town.Snapshot{SchemaVersion: town.SchemaVersion, TownID: "t", Day: 3}),
	}
	for _, c := range change {
		c(&config)
	}
	rows, err := conformance.Check(t.Context(), nc, config)
	require.NoError(t, err)
	byName := map[string]conformance.Row{}
	for _, row := range rows {
		byName[row.Name] = row
		require.NotEmpty(t, row.Rule)
		require.NotEmpty(t, row.Todo)
		require.NotEmpty(t, row.Found, row.Name)
	}
	require.Len(t, byName, 16)
	return byName
}

func failed(rows map[string]conformance.Row) (names []string) {
	for name, row := range rows {
		if row.Verdict == conformance.Fail {
			names = append(names, name)
		}
	}
	return names
}

func serve(t *testing.T, nc *nats.Conn, memory plugin.Memory, apply plugin.Func) func() {
	t.Helper()
	p, err := plugin.Serve(nc, plugin.Config{
		World: "main", Towns: []string{"t"}, Memory: memory,
		Apply: apply, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	}
}

// A plugin with a memory on disk keeps the rule of restarts, and one without fails.
func TestCheck_Restart(t *testing.T) {
	t.Parallel()
	for name, memories := range map[string]func(t *testing.T) (before, after plugin.Memory){
		"pass": func(t *testing.T) (plugin.Memory, plugin.Memory) {
			file := filepath.Join(t.TempDir(), "memory")
			before, err := plugin.OpenFile(file, plugin.FileConfig{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = before.Close() })
			return before, before
		},
		"fail": func(*testing.T) (plugin.Memory, plugin.Memory) {
			return plugin.NewVolatileMemory(), plugin.NewVolatileMemory()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := natstest.Connect(t)
			before, after := memories(t)
			does := func(answer apply.Status) plugin.Func {
				return func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
					done := apply.Done(c)
					done.Status = answer
					return done, nil
				}
			}
			next := []func(){serve(t, nc, before, does(apply.Applied)), func() {
				t.Cleanup(serve(t, nc, after, does(apply.Refused))) // what it remembers is applied
			}}
			rows := check(t, nc, func(c *conformance.Config) {
				c.Restart = 30 * time.Second
				c.Ask = func(string) {
					next[0]()
					next = next[1:]
				}
			})
			require.Empty(t, next)
			require.Equal(t, conformance.Verdict(name), rows["restart"].Verdict,
				rows["restart"].Found)
		})
	}
}

// A plugin may end again while it restarts.
func TestCheck_RestartTwice(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	game := natstest.Dial(t, nc.ConnectedUrl())
	memory := plugin.NewVolatileMemory()
	start := func() func() {
		return serve(t, game, memory, func(_ context.Context, c *apply.Command) (apply.GameAnswer, error) {
			return apply.Done(c), nil
		})
	}
	started := make(chan func(), 1)
	next := []func(){start(), func() {
		_, err := game.Subscribe(subject, func(msg *nats.Msg) {
			_ = msg.Sub.Unsubscribe()
			_ = game.Flush()
			sent := nc.Stats().OutMsgs
			_ = msg.Respond([]byte("an answer before the end"))
			for nc.Stats().OutMsgs == sent && t.Context().Err() == nil {
				runtime.Gosched()
			}
			started <- start()
		})
		require.NoError(t, err)
		require.NoError(t, game.Flush())
	}}
	rows := check(t, nc, func(c *conformance.Config) {
		c.Restart = 30 * time.Second
		c.Ask = func(string) {
			next[0]()
			next = next[1:]
		}
	})
	require.Empty(t, failed(rows))
	require.Equal(t, conformance.Pass, rows["restart"].Verdict, rows["restart"].Found)
	(<-started)()
}

// script is a plugin that keeps all rules but one.
type script struct {
	breaks string

	mu       sync.Mutex
	known    map[string]apply.GameAnswer
	requests map[string]int
	lost     string // the id that never gets an answer
}

// answer answers a request.
func (s *script) answer(msg *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := apply.ParseCommand(msg.Data, schemas.Limits{})
	if err != nil {
		s.answerOther(msg)
		return
	}
	if c.TownID != "t" && s.breaks != "other-town" || s.breaks == "not-json" &&
		s.requests["broken"] > 0 {
		return
	}
	if s.breaks == "unknown-members" && string(msg.Data) != string(mustMarshal(c)) {
		return
	}
	s.requests[c.ApplyID]++
	for _, answer := range s.answers(c) {
		data, err := answer.MarshalWire()
		if err == nil {
			_ = msg.Respond(data)
		}
	}
}

func mustMarshal(c *apply.Command) []byte {
	data, err := c.MarshalWire(c.Deadline.Add(-time.Duration(c.TimeoutMs) * time.Millisecond))
	if err != nil {
		panic(err)
	}
	return data
}

// answerOther handles a request that is no command-apply.v1.
func (s *script) answerOther(msg *nats.Msg) {
	var c apply.Command
	if err := json.Unmarshal(msg.Data, &c); err == nil && s.breaks == "other-version" {
		answer := apply.Done(&c)
		data, _ := answer.MarshalWire()
		_ = msg.Respond(data)
	} else if err != nil {
		s.requests["broken"]++
	}
}

func (s *script) answers(c *apply.Command) []apply.GameAnswer {
	done := apply.Done(c)
	known, again := s.known[c.ApplyID]
	times := s.requests[c.ApplyID]
	tooLate := apply.Refuse(c, "DEADLINE_PASSED", "Too late.", true)
	switch {
	case s.breaks == "answer":
		done.ApplyID = "handoff_" + fmt.Sprintf("%064d", 0)
	case s.breaks == "reported-town":
		done.Snapshot = []byte(`{"schemaVersion":"snapshot.v1"}`)
	case s.breaks == "one-plugin":
		return []apply.GameAnswer{done, done}
	case s.breaks == "same-id" && times > 2,
		s.breaks == "later-attempt" && c.LogicalAttemptID > 1 && again,
		s.breaks == "same-id-at-once" && times > 1 && c.LogicalAttemptID == 1 && len(s.known) > 1:
		return []apply.GameAnswer{apply.Refuse(c, "ALREADY_DONE", "It is done.", false)}
	case s.breaks == "two-at-once" && len(s.known) == 3 && (s.lost == "" || s.lost == c.ApplyID):
		s.lost = c.ApplyID
		return nil
	case s.breaks == "refused" && c.Args["projectId"] != "wall":
		return nil
	}
	if again && !known.Retryable {
		return []apply.GameAnswer{known}
	}
	if c.TimeoutMs == 0 && s.breaks != "late" {
		if s.breaks == "late-again" {
			s.known[c.ApplyID] = tooLate
		}
		return []apply.GameAnswer{tooLate}
	}
	if again && s.breaks == "late-again" {
		return []apply.GameAnswer{known}
	}
	s.known[c.ApplyID] = done
	return []apply.GameAnswer{done}
}

// wrongVerdict returns a row that has another verdict than it should; "" if it has that.
func wrongVerdict(want conformance.Verdict, row conformance.Row) string {
	if row.Verdict != want {
		return fmt.Sprintf("not %s: %+v", want, row)
	}
	return ""
}

// A second plugin stays unseen if no answer comes, and is seen even if the first one is slow.
func TestCheck_SecondPlugin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers int // to the second request of the first id
		want    conformance.Verdict
	}{
		"silent":    {0, conformance.Skip},
		"one, slow": {1, conformance.Pass}, "two, slow": {2, conformance.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			natstest.Patiently(t, 100*time.Millisecond, func(quiet time.Duration) string {
				nc := natstest.Connect(t)
				s := &script{known: map[string]apply.GameAnswer{}, requests: map[string]int{}}
				took := 0
				_, err := nc.Subscribe(subject, func(msg *nats.Msg) {
					if took++; took != 2 {
						s.answer(msg)
						return
					}
					time.AfterFunc(4*quiet, func() {
						for range test.answers {
							s.answer(msg)
						}
					})
				})
				require.NoError(t, err)
				return wrongVerdict(test.want, check(t, nc, func(c *conformance.Config) {
					c.Timeout, c.Quiet = 10*quiet, quiet
				})["one-plugin"])
			})
		})
	}
}

// Each rule has a plugin that breaks it and fails for that.
func TestCheck_EachRuleCanFail(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{
		"", "answer", "reported-town", "one-plugin", "same-id", "later-attempt",
		"same-id-at-once", "two-at-once",
		"late", "late-again", "refused", "unknown-members", "other-version",
		"other-town", "not-json", "hosts",
	} {
		t.Run("breaks "+rule, func(t *testing.T) {
			t.Parallel()
			natstest.Patiently(t, 200*time.Millisecond, func(quiet time.Duration) string {
				rows := checkScript(t, rule, quiet)
				if rule == "" {
					require.Empty(t, failed(rows), "%+v", rows)
					return ""
				}
				return wrongVerdict(conformance.Fail, rows[rule])
			})
		})
	}
}

// checkScript checks a plugin that breaks a rule.
func checkScript(t *testing.T, rule string, quiet time.Duration) map[string]conformance.Row {
	t.Helper()
	nc := natstest.Connect(t)
	s := &script{breaks: rule, known: map[string]apply.GameAnswer{}, requests: map[string]int{}}
	_, err := nc.Subscribe(subject, s.answer)
	require.NoError(t, err)
	if rule != "hosts" {
		_, err = nc.Subscribe(wire.HostsSubject("main", "t"), func(msg *nats.Msg) {
			_ = msg.Respond([]byte("{}"))
		})
		require.NoError(t, err)
	}
	return check(t, nc, func(c *conformance.Config) {
		c.Type, c.Argument = "PROJECT_ADVANCE", "wall"
		switch rule {
		case "two-at-once", "refused", "unknown-members", "not-json": // it never answers
			c.Timeout = 5 * quiet
		case "one-plugin", "other-version", "other-town": // its answer breaks the rule
			c.Quiet = quiet
		}
		c.Town = town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: "t",
			Projects: []town.Project{{ID: "wall", Name: "Wall", Status: town.Active}},
		})
	})
}

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/plugin"
)

// testdata/scenarios.txt has the scenarios, and explains their steps.
func TestServe_Scenarios(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/scenarios.txt")
	require.NoError(t, err)
	for _, scenario := range strings.Split(string(text), "\n== ")[1:] {
		name, steps, _ := strings.Cut(scenario, "\n")
		variants := []string{""}
		if at := strings.LastIndex(name, ": "); strings.Contains(steps, "$") {
			name, variants = name[:at], strings.Fields(name[at+1:])
		}
		for _, variant := range variants {
			t.Run(strings.TrimSpace(name+" "+variant), func(t *testing.T) {
				t.Parallel()
				s := newScript(t)
				for line := range strings.SplitSeq(strings.ReplaceAll(steps, "$", variant), "\n") {
					if line != "" && line[0] != '#' {
						s.step(line)
					}
				}
			})
		}
	}
}

// script runs the steps of a scenario.
type script struct {
	t        *testing.T
	engine   *engine
	plugin   *plugin.Plugin
	memory   *mortal
	clock    *clock
	commands map[string]*apply.Command // by town and number
	requests map[string]*request       // by reply subject
	// called has each call of Apply and Recover, with its command and attempt, and heard each call of
	// Answered. returns has the outcomes of the calls.
	called, heard, returns chan string
	closed                 chan error
}

func newScript(t *testing.T) *script {
	return &script{
		t: t, engine: newEngine(t), memory: newMortal(plugin.NewVolatileMemory(), -1),
		clock: &clock{now: time.Now()}, commands: map[string]*apply.Command{},
		requests: map[string]*request{}, called: make(chan string), heard: make(chan string, 100),
		returns: make(chan string), closed: make(chan error, 1),
	}
}

func (s *script) step(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch verb {
	case "memory":
		s.memory.remaining.Store(int64(s.number(rest)))
	case "begun":
		c := s.command(words)
		require.NoError(s.t, s.memory.Put(plugin.Record{
			ApplyID: c.ApplyID, TownID: c.TownID, Attempt: 1, At: c.Deadline}))
	case "serve":
		s.serve(words)
	case "ask":
		s.ask(words[0], s.command(words[1:]), words[3:])
	case "raw":
		s.requests[words[0]] = s.engine.publish(s.engine.inbox(""), []byte(words[1]), "a")
	case "apply", "recover":
		require.Equal(s.t, line+" ", (s.receive(s.called, line) + " ")[:len(line)+1])
	case "return":
		select {
		case s.returns <- rest:
		case <-time.After(testTimeout):
			s.t.Fatal("no call returns")
		}
	case "no":
		require.NoError(s.t, s.engine.nc.Flush())
		select {
		case call := <-s.called:
			s.t.Fatal(call)
		default:
		}
	case "heard":
		require.Equal(s.t, rest, s.receive(s.heard, line))
	case "pass":
		s.clock.advance(s.duration(rest))
	case "close":
		s.close(rest == "now")
	case "closed":
		require.NoError(s.t, <-s.closed)
	default:
		require.Contains(s.t, s.requests, verb, line)
		require.Equal(s.t, rest, s.next(s.requests[verb], rest == "nothing"), line)
	}
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(s.t, err)
	return n
}

func (s *script) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}

func (s *script) receive(from <-chan string, line string) string {
	select {
	case text := <-from:
		return text
	case <-time.After(testTimeout):
		s.t.Fatal("it does not happen: " + line)
		return ""
	}
}

func (s *script) command(words []string) *apply.Command {
	name := words[0] + words[1]
	if s.commands[name] == nil {
		s.commands[name] = command(s.t, words[0], s.number(words[1]))
	}
	return s.commands[name]
}

func (s *script) serve(options []string) {
	config := plugin.Config{
		Memory: s.memory, Apply: s.calls("apply"), Now: s.clock.Now,
		Answered: func(_ *apply.Command, answer *apply.GameAnswer, again bool) {
			text := "nothing"
			if answer != nil {
				text = describe(*answer)
			}
			if again {
				text = "again " + text
			}
			s.heard <- text
		},
	}
	for _, option := range options {
		switch name, value, _ := strings.Cut(option, "="); name {
		case "queue":
			config.Queue = s.number(value)
		case "concurrency":
			config.Concurrency = s.number(value)
		case "retry":
			config.RetryAfter = s.duration(value)
		case "ahead":
			s.clock.advance(s.duration(value))
		case "recover":
			config.Recover = s.calls("recover")
		}
	}
	s.plugin = s.engine.serve(config)
}

// calls returns a function of a plugin, which reports its call and returns as a step says.
func (s *script) calls(name string) plugin.Func {
	return func(ctx context.Context, c *apply.Command) (answer apply.GameAnswer, err error) {
		call := fmt.Sprint(name, " ", c.TownID, " ", c.DecisionEpoch, " ", c.LogicalAttemptID)
		select {
		case s.called <- call:
		case <-ctx.Done():
			return answer, ctx.Err()
		}
		var words []string
		select {
		case text := <-s.returns:
			words = strings.Fields(text)
		case <-ctx.Done():
			return answer, ctx.Err()
		}
		answer = apply.Done(c)
		switch words[0] {
		case "refused":
			answer = apply.Refuse(c, words[1], "", len(words) > 2)
		case "busy", "in-progress":
			answer = apply.Later(c, apply.Status(words[0]), 0)
		case "error":
			err = errors.New("the world is gone")
		case "unavailable":
			err = fmt.Errorf("the chunk does not load: %w", apply.ErrUnavailable)
		case "none":
			err = plugin.ErrNoAnswer
		case "panic":
			panic("a defect")
		case "no-status":
			answer.Status = ""
		case "bad-reason":
			answer = apply.Refuse(c, "no such code", "", false)
		case "bad-snapshot":
			answer.Snapshot = []byte(`{"day":`)
		}
		return answer, err
	}
}

// ask sends a request with options: its attempt, and the time that is left.
func (s *script) ask(on string, c *apply.Command, options []string) {
	request := attempt(c, 1)
	for _, option := range options {
		if left, found := strings.CutPrefix(option, "left="); found {
			request.Deadline = time.Now().Add(s.duration(left))
		} else {
			request.LogicalAttemptID = int64(s.number(option))
		}
	}
	if a := s.requests[on]; a != nil && a.applyID == c.ApplyID {
		s.engine.request(request, a)
	} else {
		s.requests[on] = s.engine.send(request)
	}
}

// next returns the next answer on a reply subject.
func (s *script) next(on *request, mayBeNone bool) string {
	if pending, _, err := on.replies.Pending(); mayBeNone && pending == 0 {
		require.NoError(s.t, err)
		return "nothing"
	}
	msg, err := on.replies.NextMsg(testTimeout)
	if errors.Is(err, nats.ErrNoResponders) {
		return "nobody"
	}
	require.NoError(s.t, err)
	answer, err := apply.ParseAnswer(msg.Data, on.applyID, schemas.Limits{})
	require.NoError(s.t, err)
	return describe(answer)
}

// clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// describe returns the text of an answer in a scenario. It leaves out the default pause.
func describe(a apply.GameAnswer) string {
	text := string(a.Status)
	if a.ReasonCode != "" {
		text += " " + a.ReasonCode
	}
	if a.Retryable {
		text += " retryable"
	}
	if a.RetryAfterMs > 0 && a.RetryAfterMs != 500 {
		text += fmt.Sprint(" ", a.RetryAfterMs, "ms")
	}
	return text
}

func (s *script) close(now bool) {
	ctx, cancel := context.WithCancel(context.Background())
	s.t.Cleanup(cancel)
	if !now {
		go func() { s.closed <- s.plugin.Close(ctx) }()
		return
	}
	cancel()
	err := s.plugin.Close(ctx)
	require.ErrorIs(s.t, err, plugin.ErrUnfinished)
	require.ErrorIs(s.t, err, context.Canceled)
}

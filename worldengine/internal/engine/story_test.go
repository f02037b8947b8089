package engine

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
)

var rewriteStories = flag.Bool("rewrite", false, "write the outputs in testdata/stories anew")

// TestStories plays testdata/stories, each in a world of the simulation: a real engine, over a log and a
// game in memory. Town 0 has the built-in rules; a game applies the commands of town 1. A client waits
// 400 ms for the end of a pause, and 6 s for a game; an attempt lasts 3 s. A line that begins with
// "> " is an input:
//
//	> send NAME TOWN: a handoff of the town's present state; a name that is known is sent again
//	> put TOWN: a change without a handoff
//	> pause|resume TOWN|world · > cancel NAME [force]: of the first run of a handoff
//	> game away|silent|busy|refuses|later|applies: from now on; later refuses for now
//	> answer NAME WAY: the game answers the first request for a command, though it was silent or has answered
//	> sleep DURATION
//	> lost|unanswered|refused OPERATION: the next operation of the log with such a name has this fault of simFaults
//	> kill: the writer is killed, and the next one starts · > stop: the writer ends in good order
//	> rival: the next writer starts, and the one before does not know that; it gets no more inputs
//
// Lines with "< " are the output, after the milliseconds since the beginning: the answers, the requests
// to the game, and the records, each with its run, its kind, and its events about the run or a signal.
func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/stories/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var got strings.Builder
			for text := range strings.SplitSeq(string(data), "\n\n") {
				synctest.Test(t, func(t *testing.T) {
					s := newStory(t)
					for line := range strings.Lines(text) {
						if strings.HasPrefix(line, "< ") {
							continue
						}
						got.WriteString(strings.TrimSuffix(line, "\n") + "\n")
						if input, ok := strings.CutPrefix(line, "> "); ok {
							s.play(strings.Fields(input))
							synctest.Wait()
							got.WriteString(s.heard())
						}
					}
					s.end()
				})
				got.WriteString("\n")
			}
			text := strings.TrimSuffix(got.String(), "\n")
			if *rewriteStories {
				require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
				return
			}
			require.Equal(t, string(data), text)
		})
	}
}

// story is a simulated world without chance.
type story struct {
	*sim
	t     *testing.T
	since time.Time
	// handoffs are by name, and names by the id of a handoff or a run.
	handoffs map[string]*handoff.Handoff
	names    map[string]string
	runs     map[string]string     // the first run of each name
	requests map[string]simRequest // the first request of each run
	said     []storyLine
}

// storyLine is a line of output. The lines of one moment about signals come last, since they come
// from other goroutines.
type storyLine struct {
	at     int64 // milliseconds
	signal int   // 1 if the line is about a signal
	text   string
}

func newStory(t *testing.T) *story {
	s := &story{sim: newSim(2), t: t, since: time.Now(), handoffs: map[string]*handoff.Handoff{},
		names: map[string]string{}, runs: map[string]string{}, requests: map[string]simRequest{}}
	s.game.heard = func(r simRequest, c *apply.Command) {
		if _, known := s.requests[c.RunID]; !known {
			s.requests[c.RunID] = r
		}
	}
	s.quiet, s.log.appended = true, s.record
	s.plays("silent")
	s.direct.Store(true)
	synctest.Wait()
	for len(s.waiting) > 0 {
		s.turn(0)
		synctest.Wait()
	}
	return s
}

func (s *story) say(format string, args ...any) { s.sayOf(0, format, args...) }

func (s *story) sayOf(signal int, format string, args ...any) {
	s.said = append(s.said, storyLine{time.Since(s.since).Milliseconds(), signal,
		fmt.Sprintf(format, args...)})
}

func (s *story) heard() (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.said, func(a, b storyLine) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.signal, b.signal))
	})
	for _, line := range s.said {
		text += fmt.Sprintf("< %4d %s\n", line.at, line.text)
	}
	s.said = nil
	return text
}

// record says which record was stored.
func (s *story) record(m *simMessage) {
	rec := readSimRecord(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec.Run == nil {
		s.say("%s: %s", rec.TownID, rec.Kind)
		return
	}
	name, words := s.names[rec.Run.RunID], []string{string(rec.Kind)}
	for i := range rec.Run.Events {
		e := &rec.Run.Events[i]
		if started := machine.ReadStarted(&runevents.Snapshot{
			Metadata: runevents.Metadata{Started: e.Payload}}); name == "" && started.HandoffID != "" {
			name = s.names[started.HandoffID]
		}
		if !strings.HasPrefix(string(e.EventType), "Step") {
			words = append(words, string(e.EventType))
		}
	}
	if rec.Closing {
		words = append(words, "(closed)")
	}
	if name != "" && s.runs[name] == "" {
		s.runs[name] = rec.Run.RunID
	}
	s.names[rec.Run.RunID] = name
	signal := 0
	if rec.Kind == machine.KindSignal {
		signal = 1
	}
	s.sayOf(signal, "%s: %s", cmp.Or(name, "signal"), strings.Join(words, " "))
}

// storyClient is the client of one submission of a handoff to an engine.
type storyClient struct {
	*story
	engine *simEngine
	name   string
}

func (c storyClient) Answer(answer Answer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var waited *WaitError
	switch {
	case c.engine.dead.Load():
	case errors.As(err, &waited):
		c.say("%s is answered %s", c.name, waited.Code)
	case err != nil:
		c.say("%s is answered: %s", c.name, err)
	default:
		c.say("%s is answered %s", c.name, answer.Result.ReasonCode)
	}
}

// townClient is the client of a change of a town.
type townClient struct{ storyClient }

func (c townClient) Answer(_ Town, err error) {
	if err != nil {
		c.storyClient.Answer(Answer{}, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say("%s is changed", c.name)
}

func (s *story) play(words []string) {
	e := s.engines[0]
	townOf := func(word string) string {
		if word == "world" {
			return ""
		}
		return "town " + word
	}
	switch words[0] {
	case "send":
		s.send(words[1], townOf(words[2]))
	case "put":
		s.put(townOf(words[1]))
	case "pause", "resume":
		s.signal(Signal{Kind: machine.SignalKind(strings.ToUpper(words[0])), TownID: townOf(words[1])})
	case "cancel":
		s.signal(Signal{Kind: machine.SignalCancel, RunID: s.runs[words[1]], Force: len(words) > 2})
	case "game":
		s.plays(words[1])
	case "answer":
		s.turns.Lock()
		defer s.turns.Unlock()
		r := s.requests[s.runs[words[1]]]
		c, err := apply.ParseCommand(r.data, schemas.Limits{})
		require.NoError(s.t, err)
		answer, _ := answerIn(words[2], c)
		if answer.Status == apply.Applied {
			s.game.changes[c.ApplyID] = 1
		}
		s.game.deliver(r, c, answer)
	case "rival":
		s.engines = append([]*simEngine{s.start()}, s.engines...)
	case "sleep":
		d, err := time.ParseDuration(words[1])
		require.NoError(s.t, err)
		time.Sleep(d)
	case "lost", "unanswered", "refused":
		s.turns.Lock()
		defer s.turns.Unlock()
		s.fault = func(name string) error {
			if !strings.HasPrefix(name, strings.Join(words[1:], " ")) {
				return nil
			}
			s.fault = nil
			s.say("%s: %s", words[0], name)
			return simFaults[words[0]]
		}
	case "kill":
		s.turns.Lock()
		s.kill(0)
		s.turns.Unlock()
		s.engines = []*simEngine{s.start()}
	case "stop":
		e.dispatcher.Stop(s.t.Context())
		require.NoError(s.t, e.queue.Drain(s.t.Context()))
	default:
		require.Fail(s.t, "no such input", "%v", words)
	}
}

func (s *story) put(townID string) {
	s.turns.Lock()
	before := s.stateOf(townID)
	s.turns.Unlock()
	changed, e := *before.Snapshot, s.engines[0]
	changed.Day++
	require.NoError(s.t, e.Changes().Submit(townID, &Put{State: town.NewState(&changed), Expected: before.Hash},
		townClient{storyClient{s, e, townID}}))
}

func (s *story) send(name, townID string) {
	s.turns.Lock()
	defer s.turns.Unlock()
	h := s.handoffs[name]
	if h == nil {
		state, err := s.stateOf(townID), error(nil)
		h, err = handoff.New(handoff.Proposal{
			Type: handoff.TalkToTownsfolk, ActorID: name, TownID: townID, Reason: "because",
			Args: map[string]string{"talkType": "casual"}, SnapshotHash: state.Hash,
			DecisionEpoch: state.Epoch(),
		})
		require.NoError(s.t, err)
		s.handoffs[name], s.names[h.HandoffID] = h, name
		s.sent[h.HandoffID+h.SnapshotHash] = h
	}
	client := storyClient{s, s.engines[0], name}
	if err := s.engines[0].Handoffs().Submit(h, nil, trace.Context{}, client); err != nil {
		client.Answer(Answer{}, err)
	}
}

// signal sends a signal, and says how it was answered.
func (s *story) signal(signal Signal) {
	e := s.engines[0]
	go func() {
		_, err := e.Signals().Handle(e.alive, signal)
		s.mu.Lock()
		defer s.mu.Unlock()
		var refused *SignalError
		switch {
		case errors.As(err, &refused):
			s.sayOf(1, "%s is refused: %s", signal.Kind, refused.Code)
		case err != nil:
			s.sayOf(1, "%s has an error: %s", signal.Kind, err)
		default:
			s.sayOf(1, "%s is accepted", signal.Kind)
		}
	}()
}

// plays has the game act in a way from now on.
func (s *story) plays(way string) {
	s.turns.Lock()
	defer s.turns.Unlock()
	s.game.isAbsent = way == "away"
	s.game.answer = func(c *apply.Command) (answer apply.GameAnswer, answers bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.say("%s: the game is asked", s.names[c.RunID])
		return answerIn(way, c)
	}
}

// answerIn returns the answer of a game that acts in a way; none if it is silent.
func answerIn(way string, c *apply.Command) (answer apply.GameAnswer, answers bool) {
	switch way {
	case "applies":
		return apply.Done(c), true
	case "refuses":
		return apply.Refuse(c, "NO", "", false), true
	case "later":
		return apply.Refuse(c, "LATER", "", true), true
	case "busy":
		return apply.Later(c, apply.Busy, 40*time.Millisecond), true
	}
	return answer, false
}

// end ends the engines, and checks the log.
func (s *story) end() {
	s.plays("applies") // so that each run has its end
	time.Sleep(time.Minute)
	for i := range s.engines {
		s.kill(i)
	}
	time.Sleep(time.Minute)
	s.checkLog()
	s.fsck()
	require.Empty(s.t, s.found)
}

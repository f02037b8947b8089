package server_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
	"worldengine/worldengine/wire"
)

// The warning of NATS that a stream's index is behind, as after a kill, ends with a line that says
// that all is well.
func TestRestart_StreamIndexBehind(t *testing.T) {
	t.Parallel()
	data, log := t.TempDir(), &natstest.Buffer{}
	with := func(c *server.Config) {
		c.Data, c.Logger = data, slog.New(slog.NewTextHandler(log, nil))
	}
	srv, err := server.Start(t.Context(), configure(with))
	require.NoError(t, err)
	connect(t, srv).put(snapshot("t"), "")
	stop(t, srv)
	require.NotContains(t, log.String(), "all is well")
	found, err := filepath.Glob(filepath.Join(data, "jetstream", "*", "streams",
		wire.LogStream("main"), "msgs", "index.db"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.WriteFile(found[0], nil, 0o600))

	require.Len(t, list(connect(t, start(t, with))), 1)
	require.Regexp(t, `(?s)Filestore \[`+wire.LogStream("main")+`\] Recovering stream state.* errored`+
		`.*level=INFO msg="Restored \d+ messages for stream '[^']* > `+wire.LogStream("main")+
		`' in [^"]*: its index was behind, as after a kill, and is rebuilt: all is well"`, log.String())
	require.Equal(t, 1, strings.Count(log.String(), "all is well"))
}

// After a restart the towns, the keys and the runs are those of before, also if the index was thrown
// away meanwhile: it is made again from the log.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, lose := range []string{"nothing", "the index"} {
		t.Run(lose+" is lost", func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			with := func(c *server.Config) { c.Data = data }
			srv, err := server.Start(t.Context(), configure(with))
			require.NoError(t, err)
			c := connect(t, srv)
			var bodies [][]byte
			var first []outcome
			for i := range 20 {
				at := c.put(snapshot(fmt.Sprintf("town %d", i)), "")
				bodies = append(bodies, marshalled(t,
					propose(at, handoff.TalkToTownsfolk, "casual")))
				first = append(first, c.send(bodies[i]))
			}
			events := mustJSON(t, c.events(first[7].runID))
			before := list(c)
			stop(t, srv)
			if lose != "nothing" {
				require.NoError(t, os.Remove(indexFile(data)))
			}

			c = connect(t, start(t, with))
			require.Equal(t, before, list(c))
			for i, body := range bodies {
				again := c.send(body)
				require.Equal(t, handoff.Duplicate, again.result.Status)
				require.Equal(t, first[i].result.ResultID,
					*again.result.Evaluation.DuplicateCheck.DuplicateOf)
			}
			require.JSONEq(t, string(events), string(mustJSON(t, c.events(first[7].runID))))
			require.Equal(t, before, list(c))
		})
	}
}

// A key is known as long as the log keeps its record. After that a handoff is judged again: what
// was executed is stale, and what failed may be tried, since its town has not moved.
func TestKeysAreForgottenWithTheHistory(t *testing.T) {
	t.Parallel()
	const history = 20
	srv := start(t, func(config *server.Config) { config.Engine.HistoryPerTown = history })
	c := connect(t, srv)
	done := marshalled(t, propose(c.put(snapshot("t"), ""), handoff.TalkToTownsfolk, "casual"))
	executed := c.send(done).result
	require.Equal(t, handoff.Executed, executed.Status)
	failing := marshalled(t, propose(c.town("t"), handoff.AdvanceProject, "bridge"))
	first := c.send(failing)
	require.Equal(t, handoff.Failed, first.result.Status)
	state, err := town.Parse(c.town("t").Snapshot, schemas.Limits{})
	require.NoError(t, err)
	put := func(times int) {
		for range times {
			_, err := srv.Engine().Put(t.Context(), state, state.Hash)
			require.NoError(t, err)
		}
	}
	put(history - 2)
	require.Equal(t, handoff.Duplicate, c.send(done).result.Status)
	require.Equal(t, handoff.Duplicate, c.send(failing).result.Status)
	put(2)
	for _, townID := range []string{"t", ""} { // "" for any town
		_, err := srv.Engine().Receipt(t.Context(), townID, executed.IdempotencyKey)
		require.ErrorIs(t, err, worldengine.ErrUnknownResult, "town %q", townID)
	}
	require.Equal(t, handoff.ReasonStaleEpoch, c.send(done).result.ReasonCode)
	require.Equal(t, string(first.bytes), string(c.send(failing).bytes),
		"the same handoff against the same state gets the same bytes")
}

// indexFile is the file of the index of a server with a data directory.
func indexFile(data string) string { return filepath.Join(data, "index", "main", "rows") }

var rivalRounds = flag.Int("rivals.rounds", 8, "how many rounds two servers race")

// Two engines on one NATS race for the towns of a world; between them every handoff is executed
// once, and the history of a town is one line.
func TestTwoEnginesRace(t *testing.T) {
	t.Parallel()
	srv := start(t, open, withBus)
	const towns, rivals = 4, 3
	rounds := *rivalRounds
	c := connect(t, srv)
	ats := make([]townReply, towns)
	for i := range ats {
		ats[i] = c.put(snapshot(fmt.Sprintf("town-%d", i)), "")
	}
	engines := []*worldengine.Engine{srv.Engine(), beside(t, srv, withBus)}
	for round := range rounds {
		// Rivals propose different things from the same state, at both engines at once.
		var mu sync.Mutex
		executed := map[string][]*handoff.Result{}
		var wg sync.WaitGroup
		for i := range towns {
			for rival := range rivals {
				for _, engine := range engines {
					p := propose(ats[i], handoff.TalkToTownsfolk, "casual")
					p.ActorID = fmt.Sprintf("rival-%d", rival)
					h, err := handoff.Parse(marshalled(t, p), schemas.Limits{})
					require.NoError(t, err)
					wg.Go(func() {
						answer, err := engine.Execute(t.Context(), h)
						for errors.Is(err, worldengine.ErrIndexBehind) {
							// 503: clients ask again
							answer, err = engine.Execute(t.Context(), h)
						}
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						defer mu.Unlock()
						if answer.Result.Executed {
							executed[p.TownID] = append(executed[p.TownID], answer.Result)
						}
					})
				}
			}
		}
		wg.Wait()
		for i := range ats {
			require.Len(t, executed[ats[i].TownID], 1, "round %d: one of %d handoffs",
				round, 2*rivals)
			ats[i] = c.town(ats[i].TownID)
			require.Equal(t, *executed[ats[i].TownID][0].WorldState.SnapshotHash,
				ats[i].SnapshotHash)
			require.Equal(t, int64(16+round), ats[i].DecisionEpoch)
		}
	}
	requireHistory(t, c, towns, rounds)
}

// requireHistory reads the whole log and checks that each town's epochs follow one another without
// a gap, and that the bus has exactly the run events of the log.
func requireHistory(t *testing.T, c *client, towns, rounds int) {
	t.Helper()
	js := c.streams()
	log, err := js.Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
	info, err := log.Info(t.Context())
	require.NoError(t, err)
	epochs := map[string]int{}
	accepted, events := 0, 0
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		msg, err := log.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		var rec struct {
			Kind   string
			TownID string
			Run    struct{ Events []json.RawMessage }
		}
		require.NoError(t, json.Unmarshal(msg.Data, &rec))
		events += len(rec.Run.Events)
		if rec.Kind == "handoff" {
			accepted++
			epochs[rec.TownID]++
			require.Equal(t, fmt.Sprint(15+epochs[rec.TownID]), msg.Header.Get("Decision-Epoch"))
		}
	}
	require.Equal(t, towns*rounds, accepted)
	bus := busStream(t, js)
	require.Eventually(t, func() bool {
		info, err := bus.Info(t.Context())
		return err == nil && info.State.Msgs == uint64(events)
	}, 30*time.Second, 10*time.Millisecond, "the bus holds exactly the events of the log")
}

// A town that another instance has moved is judged by its true state: nothing is refused for a
// state of the past.
func TestOtherInstanceIsSeen(t *testing.T) {
	t.Parallel()
	srv := start(t, open)
	engines := []*worldengine.Engine{srv.Engine(), beside(t, srv)}
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	for i := range 40 {
		h, err := handoff.Parse(marshalled(t, propose(at, handoff.TalkToTownsfolk, "casual")),
			schemas.Limits{})
		require.NoError(t, err)
		answer := execute(t, engines[i%2], h)
		require.Equal(t, handoff.Executed, answer.Result.Status, "handoff %d", i)
		again := execute(t, engines[(i+1)%2], h)
		require.Equal(t, handoff.Duplicate, again.Result.Status,
			"handoff %d at the other engine", i)
		at.SnapshotHash = *answer.Result.WorldState.SnapshotHash
		at.DecisionEpoch = *answer.Result.WorldState.DecisionEpoch
	}
}

// One data directory has one server.
func TestDataDirectoryIsLocked(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	start(t, func(c *server.Config) { c.Data = data })
	_, err := server.Start(t.Context(), configure(func(c *server.Config) { c.Data = data }))
	require.ErrorIs(t, err, server.ErrDataInUse)
	require.ErrorContains(t, err, data)
}

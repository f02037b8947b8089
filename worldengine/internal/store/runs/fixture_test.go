package runs

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/machine/machinetest"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
)

// requireFixture requires that f has the whole judgement of a record, on a state before it.
func requireFixture(
	t *testing.T, f *fixture.Fixture, rec *machine.Record, before jsontext.Value,
) {
	t.Helper()
	h, err := handoff.Parse(rec.Handoff, schemas.Limits{})
	require.NoError(t, err)
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, string(result.Status)+" "+h.Command, f.Name)
	require.Equal(t, string(rec.Handoff), string(f.Handoff))
	require.Equal(t, string(before), string(f.Snapshot))
	require.Equal(t, result.Status, f.Expect.Status)
	require.Equal(t, result.ReasonCode, f.Expect.ReasonCode)
	require.Equal(t, string(rec.Result), f.Expect.ResultBytes)
}

// Every row of the outcome table makes a fixture, with the state if the result depends on it, and a
// receipt if the handoff was accepted.
func TestFixture_EveryOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range machinetest.Cases(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			rec, _ := logtest.Judged(t, &c)
			f, err := newFixture(rec, c.State.Canonical, c.Prior)
			require.NoError(t, err)
			depends := c.Want.Status != handoff.Duplicate && c.State.Exists()
			if !depends {
				requireFixture(t, f, rec, nil)
				again, err := newFixture(rec, nil, c.Prior)
				require.NoError(t, err, "it takes no state")
				require.Equal(t, f, again)
			} else {
				requireFixture(t, f, rec, c.State.Canonical)
			}
		})
	}
}

// A judgement that a fresh world would not repeat has no fixture, but a reason; damage is no reason.
func TestFixture_NotReplayable(t *testing.T) {
	t.Parallel()
	executed, again := machinetest.Named(t, "executed"), machinetest.Named(t, "duplicate")
	state := executed.State.Canonical
	const other = "a fresh world would answer otherwise"
	for _, row := range []struct {
		name   string
		source *machinetest.Case
		damage func(*machine.Record)
		before []byte
		prior  *dedupe.Receipt
		reason string // "" for an error
	}{
		{"no state", executed, nil, nil, nil, "the state before them is not kept"},
		{"another state", executed, nil, towntest.Threatened(towntest.Calmer).Canonical, nil, other},
		{"another first handoff", again, nil, nil,
			&dedupe.Receipt{HandoffID: again.Handoff.HandoffID, ResultID: "result_other"}, other},
		{"no first handoff", again, nil, state, nil, other},
		{"damaged state", executed, nil, []byte(`{}`), nil, ""},
		{"damaged handoff", executed, func(r *machine.Record) { r.Handoff = []byte(`{}`) },
			state, nil, ""},
		{"damaged result", executed, func(r *machine.Record) { r.Result = []byte(`{}`) },
			state, nil, ""},
	} {
		rec, _ := logtest.Judged(t, row.source)
		if row.damage != nil {
			row.damage(rec)
		}
		f, err := newFixture(rec, row.before, row.prior)
		require.Error(t, err, row.name)
		require.Nil(t, f, row.name)
		reason, replayable := errors.AsType[NotReplayable](err)
		require.Equal(t, row.reason != "", replayable, row.name)
		require.Contains(t, reason.Error(), row.reason, row.name)
	}
}

// world is a log and the maker of its fixtures.
type world struct {
	*FinalRecords
	t        *testing.T
	receipts map[string]*dedupe.Receipt // by key
	trouble  error                      // of reading them
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l := logtest.New(t)
	w := &world{t: t, receipts: map[string]*dedupe.Receipt{}}
	w.FinalRecords = &FinalRecords{Log: l, Runs: open(t, l)}
	return w
}

// fixtures returns the fixtures of a run.
func (w *world) fixtures(runID string) ([]*fixture.Fixture, error) {
	return w.Fixtures(w.t.Context(), runID,
		func(_ context.Context, _, key string) (*dedupe.Receipt, error) {
			return w.receipts[key], w.trouble
		})
}

func (w *world) put(state town.State) {
	rec := &machine.Record{Kind: machine.KindPut, TownID: state.Snapshot.TownID}
	logtest.Commit(w.t, w.Log, rec, logtest.WithState(state))
}

// judge commits a case as it was judged, and its receipt.
func (w *world) judge(c *machinetest.Case) *machine.Record {
	rec, after := logtest.Judged(w.t, c)
	logtest.Commit(w.t, w.Log, rec, logtest.WithState(after))
	if rec.Kind == machine.KindConcluded {
		result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
		require.NoError(w.t, err)
		w.receipts[c.Handoff.IdempotencyKey] = &dedupe.Receipt{
			RunID: rec.Run.RunID, HandoffID: c.Handoff.HandoffID, ResultID: result.ResultID,
		}
	}
	return rec
}

// repeat commits the handoff of a case once more.
func (w *world) repeat(c *machinetest.Case) *machine.Record {
	return w.judge(&machinetest.Case{Handoff: c.Handoff, State: c.State,
		Prior: w.receipts[c.Handoff.IdempotencyKey]})
}

// notReplayable returns why a run has no fixtures.
func (w *world) notReplayable(runID string) string {
	w.t.Helper()
	found, err := w.fixtures(runID)
	require.Empty(w.t, found)
	var reason NotReplayable
	require.ErrorAs(w.t, err, &reason)
	return reason.Error()
}

// A run has its own fixture, and a duplicate's run its first handoff's before it.
func TestFixtures_Duplicate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, c := towntest.Threatened(), machinetest.Named(t, "executed")
	w.put(before)
	rejected := w.judge(machinetest.Named(t, "rejected"))
	executed := w.judge(c)
	duplicate := w.repeat(c)

	for _, rec := range []*machine.Record{rejected, executed} {
		found, err := w.fixtures(rec.Run.RunID)
		require.NoError(t, err)
		require.Len(t, found, 1)
		requireFixture(t, found[0], rec, before.Canonical)
	}
	found, err := w.fixtures(duplicate.Run.RunID)
	require.NoError(t, err)
	require.Len(t, found, 2)
	requireFixture(t, found[0], executed, before.Canonical)
	requireFixture(t, found[1], duplicate, nil)

	_, err = w.fixtures("00000000-0000-4000-8000-000000000000")
	require.ErrorIs(t, err, ErrUnknownRun)
}

// A run has no fixtures if it judged no handoff, or not yet; if its first handoff is unknown; or if the
// log has discarded its record, or the state before it.
func TestFixtures_None(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := machinetest.Named(t, "executed")
	w.put(towntest.Threatened())
	executed := w.judge(c).Run.RunID
	duplicate := w.repeat(c).Run.RunID
	key := c.Handoff.IdempotencyKey
	w.receipts[key].RunID = "00000000-0000-4000-8000-000000000000"
	require.Contains(t, w.notReplayable(duplicate), "what came before is not recorded")
	delete(w.receipts, key)
	require.Contains(t, w.notReplayable(duplicate), "what came before is not recorded")
	w.trouble = errors.New("no answer")
	_, err := w.fixtures(duplicate)
	require.ErrorIs(t, err, w.trouble)

	signal := logtest.NewProducer(logtest.RunOf(c.Handoff))
	require.NoError(t, machine.EmitSignal(signal, machine.SignalPayload{
		Signal: machine.SignalPause, TownID: "town-threatened", ActorID: "ada"}, ""))
	pending := logtest.NewProducer(logtest.RunOf(c.Handoff))
	require.NoError(t, machine.EmitAccepted(pending, c.Handoff, &c.Want.Evaluation,
		machine.RunStart{}))
	for kind, run := range map[machine.Kind]*runlog.Run{
		machine.KindPause: signal.Run(), machine.KindPending: pending.Run(),
	} {
		logtest.Commit(t, w.Log, &machine.Record{Kind: kind, TownID: "town-threatened", Run: run})
		require.Equal(t, "no handoff was judged in the run", w.notReplayable(run.RunID))
	}

	logtest.Keep(t, w.Log, 3) // not the state before the first handoff, and then not its record
	require.Equal(t, "the state before them is not kept", w.notReplayable(executed))
	logtest.Keep(t, w.Log, 1)
	require.Equal(t, "the state before them is not kept", w.notReplayable(executed))
}

// Fixtures that are too large for an answer are refused.
func TestFixtures_TooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	large := strings.Repeat("x", PageBytes+1000)
	before := towntest.Threatened(func(s *town.Snapshot) { s.LatestNetherEvent = &large })
	w.put(before)
	h := towntest.Propose(t, before, handoff.TalkToTownsfolk, "casual")
	after, _ := town.DefaultRules().Apply(before.Snapshot, &h.Proposal)
	rec := w.judge(&machinetest.Case{Handoff: h, State: before,
		Want: machine.Check(h, nil, before).Executed(after)})
	require.Contains(t, w.notReplayable(rec.Run.RunID), "larger than an answer may be")
}

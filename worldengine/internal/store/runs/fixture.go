package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/store/records"
)

// NotReplayable is why a run has no fixtures. Most often, a server with the default rules and no
// game would, or might, give another result.
type NotReplayable string

func (e NotReplayable) Error() string { return string(e) }

// The reasons of NotReplayable, which callers may count.
const (
	errNoState     NotReplayable = "the state before them is not kept"
	errOtherResult NotReplayable = "a fresh world would answer otherwise: a game or other settings " +
		"decided, or what came before is not recorded"
	ErrNotJudged NotReplayable = "no handoff was judged in the run"
	errLarge     NotReplayable = "they are larger than an answer may be"
)

// newFixture returns the fixture of a judged handoff's record. before is the town's state before
// the handoff, nil if unknown; prior is the key's receipt. The error is a NotReplayable if there is
// no fixture.
func newFixture(
	rec *machine.Record, before jsontext.Value, prior *dedupe.Receipt,
) (*fixture.Fixture, error) {
	h, err := handoff.Parse(rec.Handoff, schemas.Limits{Bytes: len(rec.Handoff) + 1})
	if err != nil {
		return nil, fmt.Errorf("runs: a stored handoff: %w", err)
	}
	result, err := handoff.ParseResult(rec.Result, schemas.Limits{Bytes: len(rec.Result) + 1})
	if err != nil {
		return nil, fmt.Errorf("runs: a stored result: %w", err)
	}
	f := &fixture.Fixture{Name: fmt.Sprintf("%s %s", result.Status, h.Command), Handoff: rec.Handoff}
	if result.Status != handoff.Duplicate && result.ReasonCode != handoff.ReasonUnknownTown {
		if before == nil {
			return nil, errNoState
		}
		f.Snapshot = before
	}
	var state town.State
	if before != nil {
		if state, err = town.ParseStored(before); err != nil {
			return nil, err
		}
	}
	again, err := freshResult(h, prior, state).MarshalWire()
	if err != nil {
		return nil, err
	}
	if string(again) != string(rec.Result) {
		return nil, errOtherResult
	}
	f.Expect = fixture.Expectation{
		Status: result.Status, ReasonCode: result.ReasonCode, ResultBytes: string(rec.Result),
	}
	return f, nil
}

// freshResult returns the result that a server with the default rules and no game would give.
func freshResult(h *handoff.Handoff, prior *dedupe.Receipt, state town.State) *handoff.Result {
	checked := machine.Check(h, prior, state)
	outcome := checked.Outcome
	if checked.Accepted {
		after, reason := town.DefaultRules().Apply(state.Snapshot, &h.Proposal)
		if reason == "" {
			outcome = checked.Executed(after)
		} else {
			outcome = checked.Failed(reason, state)
		}
	}
	return handoff.NewResult(h, outcome)
}

// readTimeout bounds the reading of one record and the one before it.
const readTimeout = 10 * time.Second

// Fixtures returns the fixtures that repeat the judgement of a run's handoff: for a duplicate, the
// fixture of its first handoff comes before its own. receipt returns the receipt of a key that a
// town accepted, or nil. The error is a NotReplayable if there are none, or Get's.
func (r *FinalRecords) Fixtures(
	ctx context.Context, runID string,
	receipt func(ctx context.Context, townID, key string) (*dedupe.Receipt, error),
) (fixtures []*fixture.Fixture, err error) {
	rec, before, err := r.judged(ctx, runID)
	if err != nil {
		return nil, err
	}
	var prior *dedupe.Receipt
	if key := duplicateOf(rec); key != "" {
		if prior, err = receipt(ctx, rec.TownID, key); err != nil {
			return nil, err
		}
		if prior == nil {
			return nil, errOtherResult
		}
		first, before, err := r.judged(ctx, prior.RunID)
		if errors.Is(err, ErrUnknownRun) {
			err = errOtherResult
		}
		if err != nil {
			return nil, err
		}
		f, err := newFixture(first, before, nil)
		if err != nil {
			return nil, err
		}
		fixtures = append(fixtures, f)
	}
	f, err := newFixture(rec, before, prior)
	if err != nil {
		return nil, err
	}
	fixtures = append(fixtures, f)
	if data, err := json.Marshal(fixtures); err != nil || len(data) > PageBytes {
		return nil, errors.Join(err, errLarge)
	}
	return fixtures, nil
}

// duplicateOf returns the key of a record's handoff if it was a duplicate, else "".
func duplicateOf(rec *machine.Record) string {
	var result handoff.Result
	if json.Unmarshal(rec.Result, &result) != nil || result.Status != handoff.Duplicate {
		return ""
	}
	return result.IdempotencyKey
}

// judged returns the record that judged a run's handoff, and its town's state before the handoff;
// the state is nil if the log does not keep it.
func (r *FinalRecords) judged(
	ctx context.Context, runID string,
) (*machine.Record, jsontext.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rec, seq, err := r.Get(ctx, runID)
	switch {
	case err != nil:
		return nil, nil, err
	case seq == 0:
		return nil, nil, ErrNotJudged
	case rec == nil:
		return nil, nil, errNoState // the record has expired
	}
	if !rec.Kind.Spec().HasResult || rec.Kind == machine.KindAsked {
		return nil, nil, ErrNotJudged
	}
	prior, err := r.Log.TownBefore(ctx, rec.TownID, seq)
	if err != nil || prior == nil || prior.Sequence >= seq {
		return rec, nil, err
	}
	state, err := records.Read(prior.Data)
	if err != nil {
		return nil, nil, err
	}
	return rec, state.Snapshot, nil
}

package worldengine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/schemas"
	"worldengine/worldengine/follow"
	"worldengine/worldengine/town"
)

// Town is a town's current state as the log has it.
type Town struct {
	State town.State
	// Revision is the log sequence of the message that holds the state. It grows with every change.
	Revision uint64
}

// Summary is one town of a list.
type Summary struct {
	TownID        string `json:"townId"`
	SnapshotHash  string `json:"snapshotHash"`
	DecisionEpoch int64  `json:"decisionEpoch"`
	Revision      uint64 `json:"revision"`
}

// Town reads a town from the log, so that what another instance has just committed is seen. It
// returns ErrUnknownTown for one that does not exist.
func (e *Engine) Town(ctx context.Context, townID string) (Town, error) {
	current, err := e.log.load(ctx, townID)
	if err != nil {
		return Town{}, err
	}
	if current.seq == 0 {
		return Town{}, ErrUnknownTown
	}
	return Town{State: current.state, Revision: current.seq}, nil
}

// Put stores state as the state of its town, in its turn among the town's requests. With expected
// "" it creates the town and refuses an existing one with ErrTownExists; otherwise it replaces
// exactly the state of that hash, or refuses with *ConflictError, ErrUnknownTown, or
// *RegressionError where the day would be lowered.
func (e *Engine) Put(ctx context.Context, state town.State, expected string) (Town, error) {
	return wait(ctx, func(done func(Town, error)) error { return e.SubmitPut(state, expected, done) })
}

// SubmitPut is Put for a caller that does not wait: done is called once, from another goroutine,
// unless SubmitPut itself fails.
func (e *Engine) SubmitPut(state town.State, expected string, done func(Town, error)) error {
	return e.queues.submit(state.Snapshot.TownID, func(ctx context.Context, _ bool) {
		stored, err := Town{}, error(errPanicked)
		defer func() { done(stored, err) }()
		stored, err = e.put(ctx, state, expected)
	})
}

func (e *Engine) put(ctx context.Context, state town.State, expected string) (Town, error) {
	ctx, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	townID := state.Snapshot.TownID
	rec := record{Kind: kindPut, TownID: townID}
	for range maxRaces {
		current, err := e.log.load(ctx, townID)
		if err != nil {
			return Town{}, err
		}
		if err := mayPut(current.state, state, expected); err != nil {
			return Town{}, err
		}
		msg, err := rec.message(logSubject(e.config.World, TownToken(townID)), &state)
		if err != nil {
			return Town{}, err
		}
		seq, err := e.log.commit(ctx, msg, current.seq)
		switch {
		case err == nil:
			e.towns.set(townID, entry{seq: seq, loadedSeq: current.seq, state: state})
			return Town{State: state, Revision: seq}, nil
		case !errors.Is(err, errLostRace):
			e.towns.forget(townID)
			return Town{}, err
		}
	}
	return Town{}, ErrContended
}

// mayPut says why state may not take the place of current, or nil.
func mayPut(current, state town.State, expected string) error {
	switch {
	case expected == "" && current.Exists():
		return ErrTownExists
	case expected == "":
		return nil
	case !current.Exists():
		return ErrUnknownTown
	case current.Hash != expected:
		return &ConflictError{Expected: expected, Actual: current.Hash}
	case state.Epoch() < current.Epoch():
		return &RegressionError{Day: state.Epoch(), Current: current.Epoch()}
	}
	return nil
}

// List returns up to limit towns whose id comes after the given one, in the order of their ids'
// bytes, and whether there are more.
func (e *Engine) List(ctx context.Context, after string, limit int) ([]Summary, bool, error) {
	all, err := e.list(ctx)
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(all, func(a, b Summary) int { return strings.Compare(a.TownID, b.TownID) })
	first, _ := slices.BinarySearchFunc(all, after, func(s Summary, id string) int {
		if s.TownID <= id && id != "" {
			return -1
		}
		return 1
	})
	rest := all[first:]
	if len(rest) > limit {
		return rest[:limit], true, nil
	}
	return rest, false, nil
}

// list reads the headers of every town's last message.
func (e *Engine) list(ctx context.Context) ([]Summary, error) {
	consumer, err := e.log.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{logSubject(e.config.World, "*")},
		DeliverPolicy:  jetstream.DeliverLastPerSubjectPolicy,
		HeadersOnly:    true,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: list of the towns: %w", ErrLogUnavailable, err)
	}
	defer follow.Release(e.log.stream, consumer)
	pending, read := consumer.CachedInfo().NumPending, uint64(0)
	all := make([]Summary, 0, pending)
	for read < pending {
		batch, err := consumer.Fetch(int(min(pending-read, 1000)),
			jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return nil, fmt.Errorf("%w: list of the towns: %w", ErrLogUnavailable, err)
		}
		before := read
		for msg := range batch.Messages() {
			read++
			summary, err := e.summaryOf(ctx, msg)
			if errors.Is(err, ErrLogUnavailable) {
				return nil, err
			}
			if err != nil { // damage to one town is no reason to show none
				e.config.Logger.Error("a town cannot be listed", "subject", msg.Subject(), "error", err)
				continue
			}
			all = append(all, summary)
		}
		if read == before {
			return nil, fmt.Errorf("%w: the list of the towns breaks off: %w", ErrLogUnavailable, batch.Error())
		}
	}
	return all, nil
}

func (e *Engine) summaryOf(ctx context.Context, msg jetstream.Msg) (Summary, error) {
	header := msg.Headers()
	meta, err := msg.Metadata()
	if err != nil {
		return Summary{}, fmt.Errorf("worldengine: a log message without metadata: %w", err)
	}
	seq := meta.Sequence.Stream
	townID, err := e.townIDOf(ctx, header.Get(townHeader), seq)
	if err != nil {
		return Summary{}, fmt.Errorf("log sequence %d: %w", seq, err)
	}
	epoch, err := strconv.ParseInt(header.Get(epochHeader), 10, 64)
	if err != nil {
		return Summary{}, fmt.Errorf("log sequence %d: header %s: %w", seq, epochHeader, err)
	}
	return Summary{
		TownID: townID, SnapshotHash: header.Get(hashHeader), DecisionEpoch: epoch, Revision: seq,
	}, nil
}

// townIDOf returns the town id of a log message: from its header, or from its record where the id
// is too long for one.
func (e *Engine) townIDOf(ctx context.Context, header string, seq uint64) (string, error) {
	if header != "" {
		return percentDecode(header)
	}
	msg, err := e.log.stream.GetMsg(ctx, seq)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrLogUnavailable, err)
	}
	rec, err := readRecord(msg.Data)
	if err != nil {
		return "", err
	}
	return rec.TownID, nil
}

// LoadWorld creates the towns of a world file, a JSON array of snapshot.v1, that do not exist yet,
// and leaves the others as they are. The whole file is checked before anything is stored; the
// error names what is wrong with its JSON path.
func (e *Engine) LoadWorld(ctx context.Context, file []byte) (created int, err error) {
	states, err := parseWorld(file)
	if err != nil {
		return 0, err
	}
	for _, state := range states {
		_, err := e.Put(ctx, state, "")
		switch {
		case err == nil:
			created++
		case !errors.Is(err, ErrTownExists):
			return created, fmt.Errorf("worldengine: town %q of the world file: %w", state.Snapshot.TownID, err)
		}
	}
	return created, nil
}

// maxWorldFile bounds a world file.
const maxWorldFile = 256 << 20

func parseWorld(file []byte) ([]town.State, error) {
	tree, err := schemas.Decode(file, schemas.Limits{Bytes: maxWorldFile})
	if err != nil {
		return nil, err
	}
	list, ok := tree.([]any)
	if !ok {
		return nil, schemas.Invalid("", schemas.Violation{Message: "must be an array of snapshot.v1"})
	}
	var states []town.State
	var violations []schemas.Violation
	first := map[string]int{}
	for i, element := range list {
		state, err := town.FromTree(element)
		if err != nil {
			var invalid *schemas.ValidationError
			if errors.As(schemas.Under(schemas.Snapshot, err, i), &invalid) {
				violations = append(violations, invalid.Violations...)
			}
			continue
		}
		if j, ok := first[state.Snapshot.TownID]; ok {
			violations = append(violations, schemas.Violation{
				Path:    schemas.Pointer(i, "townId"),
				Message: fmt.Sprintf("must be unique, but %s is the same town", schemas.Pointer(j)),
			})
		}
		first[state.Snapshot.TownID] = i
		states = append(states, state)
	}
	if len(violations) > 0 {
		return nil, schemas.Invalid(schemas.Snapshot, violations...)
	}
	return states, nil
}

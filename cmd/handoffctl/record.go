package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/cmd/internal/counted"
	"worldengine/dedupe"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fixtures"
	"worldengine/worldengine/wire"
)

// recordCommand makes fixtures of what a world has judged.
type recordCommand struct {
	Town  string        `help:"Only the handoffs of this town." placeholder:"ID"`
	RunID string        `name:"run" help:"Only the handoff of this run." placeholder:"RUN-ID"`
	For   time.Duration `help:"Only what is judged from now on, for so long, or until an interrupt." placeholder:"DURATION"`
	Out   string        `help:"File to write; standard output by default." placeholder:"FILE"`
}

// Help is the command's long help.
func (recordCommand) Help() string {
	return `Reads the log of the world, as fsck does, and writes a fixture for each handoff: the
handoff, the state of its town before, and the very bytes of the result. handoffctl replay --fresh
judges them again. What a server with the default rules and no game would not answer in the same way
is left out, and counted on standard error: what a game decided, what other amounts of the rules
decided, a duplicate of what is not recorded, what stands before the history that is kept, and what
an earlier server stored without its handoff.

Example:

    handoffctl record --town town-threatened --out fixtures.json`
}

// Run records.
func (c *recordCommand) Run(ctx context.Context, a *app) error {
	var err error
	if err := checkOutput("--out", c.Out); err != nil {
		return err
	}
	if c.RunID, err = a.findRun(ctx, c.RunID, false); err != nil {
		return err
	}
	nc, err := a.dialStreams("handoffctl record")
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := a.mustReadStreams(ctx, nc, "record"); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	log, err := commitlog.OpenLog(ctx, js, a.flags.World)
	if errors.Is(err, commitlog.ErrNoWorld) {
		return noWorld(a, err)
	}
	if err != nil {
		return &client.UnavailableError{Code: "LOG_UNAVAILABLE", Message: sentence(err), Cause: err}
	}
	r := &recorder{command: c, log: log, states: map[string]jsontext.Value{},
		receipts: map[string]*dedupe.Receipt{},
		leftOut:  map[string]int{}, fixtures: []*fixtures.Fixture{}}
	if c.For > 0 {
		r.after = log.CachedInfo().State.LastSeq
		// an interrupt ends the recording, and what was judged is written
		_ = backoff.Sleep(ctx, c.For)
		ctx = context.WithoutCancel(ctx)
	}
	if err := r.read(ctx, a.flags.World); err != nil {
		return &client.UnavailableError{Code: "LOG_UNAVAILABLE", Message: sentence(err), Cause: err}
	}
	for _, why := range slices.Sorted(maps.Keys(r.leftOut)) {
		fmt.Fprintf(a.err, "left out: %d, %s\n", r.leftOut[why], why)
	}
	if len(r.fixtures) == 0 && c.For == 0 {
		return &failedError{message: "there is nothing to record: the world has judged no such " +
			"handoff that a fresh server would answer in the same way; no file was written"}
	}
	return c.write(a, r.fixtures)
}

// write writes the fixtures, one a line, into the file or to standard output.
func (c *recordCommand) write(a *app, fixtures []*fixtures.Fixture) (err error) {
	out := a.out
	if c.Out != "" {
		file, err := os.Create(c.Out)
		if err != nil {
			return usagef("--out: %v", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	text := []byte("[")
	for i := range fixtures {
		line, err := json.Marshal(fixtures[i], json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("a fixture cannot be written: %w", err)
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(text, '\n'), line...)
	}
	if _, err = io.WriteString(out, string(text)+"\n]\n"); err == nil && c.Out != "" {
		fmt.Fprintf(a.err, "%s in %s\n", counted.Of(len(fixtures), "fixture"), c.Out)
	}
	return err
}

// recorder reads a log in its order.
type recorder struct {
	command *recordCommand
	log     jetstream.Stream
	after   uint64 // only what stands behind this sequence is recorded
	// states are the towns' snapshots, by their ids, as far as the log was read.
	states map[string]jsontext.Value
	// receipts are those of the recorded handoffs that were accepted, by their towns and keys.
	receipts map[string]*dedupe.Receipt
	leftOut  map[string]int // by the reason
	fixtures []*fixtures.Fixture
}

// read reads the log up to its end.
func (r *recorder) read(ctx context.Context, world string) error {
	token, unknown := "*", wire.RefusedSubject(world, "*")
	if r.command.Town != "" {
		token, unknown = wire.TownToken(r.command.Town),
			wire.RefusedSubject(world, wire.UnknownTownToken)
	}
	subjects := []string{wire.LogSubject(world, token), wire.RefusedSubject(world, token)}
	if r.command.Town != "" {
		subjects = append(subjects, unknown)
	}
	return commitlog.Each(ctx, r.log, jetstream.ConsumerConfig{FilterSubjects: subjects},
		func(msg jetstream.Msg, seq uint64) error {
			stored, err := r.log.GetMsg(ctx, seq)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil // discarded meanwhile
			}
			if err != nil {
				return err
			}
			rec, err := commitlog.ReadRecord(stored.Data)
			if err != nil {
				r.leftOut["their records cannot be read"]++
				return nil
			}
			return r.take(rec, seq)
		})
}

// take records a record of the log, if it is one of the wanted handoffs.
func (r *recorder) take(rec *commitlog.Record, seq uint64) error {
	before := r.states[rec.TownID]
	if rec.Kind.OfTown() {
		r.states[rec.TownID] = rec.Snapshot
	}
	c := r.command
	judged := rec.Kind == commitlog.KindHandoff || rec.Kind == commitlog.KindRefused
	if !judged || seq <= r.after || c.Town != "" && rec.TownID != c.Town ||
		c.RunID != "" && (rec.Run == nil || rec.Run.RunID != c.RunID) {
		return nil
	}
	place := rec.TownID + "\x00" + keyOf(rec)
	f, receipt, err := fixtures.New(rec, before, r.receipts[place])
	var why fixtures.NotReplayable
	if errors.As(err, &why) {
		r.leftOut[why.Error()]++
		return nil
	}
	if err != nil {
		return fmt.Errorf("log sequence %d: %w", seq, err)
	}
	if receipt != nil {
		r.receipts[place] = receipt
	}
	f.Name = fmt.Sprintf("%d %s", len(r.fixtures)+1, f.Name)
	r.fixtures = append(r.fixtures, f)
	return nil
}

// keyOf returns the key of a record's handoff.
func keyOf(rec *commitlog.Record) string {
	var h struct {
		Key string `json:"idempotencyKey"`
	}
	_ = json.Unmarshal(rec.Handoff, &h) // fixtures.New says what is wrong with it
	return h.Key
}

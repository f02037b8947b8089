// Package conformance tests a plugin against each rule of docs/plugin-protocol.md. It sends requests like an engine, and
// like one that has restarted, is late, or is newer. Use it in the tests of a plugin in any language, or run handoffctl
// plugin check.
//
// It sees the plugin's answers and not its game: a plugin that answers correctly passes, even if it
// applies a command twice.
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
)

// Town is the state of a town; ParseTown reads it.
type Town = town.State

// ParseTown reads a snapshot.v1. The error is a *schemas.ValidationError.
func ParseTown(data []byte) (Town, error) { return town.Parse(data, schemas.Limits{}) }

// Config configures a check.
type Config struct {
	// Subject is worldengine.v1.<world>.apply.<town token> of the plugin's town.
	Subject string
	// Town is the state that the commands are for.
	Town Town
	// Type and Argument are the commands' type and argument; a casual talk by default.
	Type     handoff.ProposalType
	Argument string
	// Timeout bounds the wait for a definite answer; 10 s by default. After Quiet without an answer,
	// the plugin counts as silent; 1 s by default.
	Timeout, Quiet time.Duration
	// Restart bounds the wait for a restart of the plugin; 0 skips that rule. Ask, unless nil, is
	// called with each request to the plugin's author, such as to end the plugin.
	Restart time.Duration
	Ask     func(text string)
	// Finished, unless nil, is called with each row.
	Finished func(Row)
}

// Verdict is the result of a rule.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	// Skip: the rule could not be observed.
	Skip Verdict = "skip"
)

// Row is a rule of the protocol, and its verdict about the plugin.
type Row struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
	// Todo is the remedy for a plugin that breaks the rule.
	Todo    string  `json:"todo"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	// Answer is the answer to the first command, in the first row only: applied or refused.
	Answer apply.Status  `json:"answer,omitzero"`
	Took   time.Duration `json:"-"`
}

// ErrAbsent: no plugin is subscribed.
var ErrAbsent = errors.New("conformance: no plugin is subscribed to the subject")

// ErrDenied: the user of the connection may not ask plugins.
var ErrDenied = errors.New("conformance: this user may not ask plugins")

// errSkip marks a rule that could not be observed.
var errSkip = errors.New("not seen")

// Check tests the plugin of a subject, rule by rule. It returns ErrAbsent if no plugin is
// subscribed, ErrDenied if the user may not ask it, a *schemas.ValidationError if Type and Argument
// make no handoff, and ctx's error if ctx ends first.
func Check(ctx context.Context, nc *nats.Conn, config Config) ([]Row, error) {
	if config.Type == "" {
		config.Type, config.Argument = handoff.TalkToTownsfolk, "casual"
	}
	config.Timeout = cmp.Or(config.Timeout, 10*time.Second)
	config.Quiet = cmp.Or(config.Quiet, time.Second)
	if config.Ask == nil {
		config.Ask = func(string) {}
	}
	c := &checker{Config: config, nc: nc, actor: "plugin-check-" + nuid.Next()}
	var done []Row
	for _, rule := range rules {
		began := time.Now()
		command, err := c.command(c.Type, c.Argument)
		if err != nil {
			return nil, err
		}
		found, err := "the first command has no answer that counts", errSkip
		if len(done) == 0 || done[0].Verdict == Pass {
			found, err = rule.check(c, ctx, command)
		}
		switch {
		case ctx.Err() != nil:
			return done, ctx.Err()
		case len(done) == 0 && (errors.Is(err, ErrAbsent) || errors.Is(err, ErrDenied)):
			return nil, err
		}
		r := Row{Name: rule.name, Rule: rule.rule, Todo: rule.todo, Verdict: Pass, Found: found,
			Took: time.Since(began)}
		switch {
		case errors.Is(err, errSkip):
			r.Verdict = Skip
		case errors.Is(err, ErrAbsent):
			r.Verdict, r.Found = Fail, "the plugin is gone: none is subscribed any more"
		case err != nil:
			r.Verdict, r.Found = Fail, err.Error()
		case len(done) == 0:
			r.Answer = c.got.Status
		}
		done = append(done, r)
		if config.Finished != nil {
			config.Finished(r)
		}
	}
	return done, nil
}

type checker struct {
	Config
	nc    *nats.Conn
	actor string // unique, so that the ids of the commands are new
	made  int    // the number of commands made

	first  *apply.Command   // the command of the rule "answer"
	got    apply.GameAnswer // the answer to first
	tooOld *apply.Command   // the command of the rule "late"
}

// runID is the run of the commands, which does not exist.
const runID = "00000000-0000-4000-8000-000000000000"

func (c *checker) command(kind handoff.ProposalType, argument string) (*apply.Command, error) {
	c.made++
	h, err := handoff.New(handoff.Proposal{
		Type: kind, ActorID: c.actor, TownID: c.Town.Snapshot.TownID,
		Priority: float64(c.made) / 1000,
		Reason:   "handoffctl plugin check", Args: map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: c.Town.Hash, DecisionEpoch: c.Town.Epoch(),
	})
	if err != nil {
		return nil, fmt.Errorf("conformance: the command: %w", err)
	}
	expected, reason := town.DefaultRules().Apply(c.Town.Snapshot, &h.Proposal)
	if reason != "" { // the rules refuse it, so no change is expected
		expected = c.Town
	}
	return apply.NewCommand(h, runID, c.Town, expected), nil
}

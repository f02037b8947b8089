package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/town"
)

// Config has the plugin's town and the command to ask for.
type Config struct {
	// Subject is the town's, worldengine.v1.<world>.apply.<town token>.
	Subject string
	// Town is the state that the commands are for.
	Town town.State
	// Type and Argument are the command; a casual talk by default.
	Type     handoff.ProposalType
	Argument string
	// Timeout bounds the wait for a definite answer; 10 s. Quiet is the wait that proves silence; 1
	// s.
	Timeout, Quiet time.Duration
	// Restart bounds the waits for the plugin's end and for its new start; 0 skips them. Ask, if
	// set, is called before each.
	Restart time.Duration
	Ask     func(what string)
	// Finished, if set, is called with each row.
	Finished func(Row)
}

// Verdict is whether a plugin keeps a rule.
type Verdict string

// The verdicts.
const (
	Pass Verdict = "pass"
	Fail Verdict = "fail"
	// Skip: the rule could not be observed.
	Skip Verdict = "skip"
)

// Row is a rule of the protocol, and whether the plugin keeps it.
type Row struct {
	Name string `json:"name"`
	Rule string `json:"rule"`
	// Todo tells the plugin's author how to mend a broken rule.
	Todo    string  `json:"todo"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	// Answer, of the first row, is how the first command ended: applied or refused.
	Answer apply.Status  `json:"answer,omitzero"`
	Took   time.Duration `json:"-"`
}

// ErrAbsent means that no plugin is subscribed.
var ErrAbsent = errors.New("conformance: no plugin is subscribed to the subject")

// ErrDenied means that the user of the connection may not ask plugins.
var ErrDenied = errors.New("conformance: this user may not ask plugins")

// errSkip marks a rule that could not be observed.
var errSkip = errors.New("not seen")

// rows are the rules in order, each with the cure if it is broken. A check gets a command that was
// not asked for before.
var rows = []struct {
	name, rule, todo string
	check            func(*checker, context.Context, *apply.Command) (found string, err error)
}{
	{"answer",
		"A command gets a valid command-applied.v1 with its applyId, and in the end applied " +
			"or refused.",
		"Answer on the reply subject of each request; answer in-progress while it takes long.",
		(*checker).answer},
	{"reported-town", "A snapshot that applied reports is a snapshot.v1 of the town.",
		"Report the whole town with the same townId, or leave snapshot out.",
		(*checker).reportedTown},
	{"one-plugin", "A town has one plugin, which answers a request applied once.",
		"End the other plugin, or the connection that a reload left open; answer once.",
		(*checker).onePlugin},
	{"same-id", "The same id again gets the same answer.",
		"Keep each definite answer on disk by its applyId, and answer with that.",
		(*checker).sameID},
	{"later-attempt",
		"The same id in a later attempt gets the same answer: applied and refused for good are " +
			"for ever.",
		"Look the applyId up whatever the logicalAttemptId is.", (*checker).laterAttempt},
	{"same-id-at-once",
		"Two requests of a new id at once are one command: no two different definite answers.",
		"Enter the applyId as begun before anything else, and answer in-progress while it is.",
		(*checker).sameIDAtOnce},
	{"two-at-once", "Two commands at once get an answer each, with their own ids.",
		"Queue commands, and answer each with its own applyId.", (*checker).twoAtOnce},
	{"late", "A command whose time is over is not begun.",
		"If timeoutMs is over answer refused, DEADLINE_PASSED, with retryable true.",
		(*checker).late},
	{"late-again", "A command that was refused as too late may be begun by the next attempt.",
		"Keep a refusal with retryable true for its logicalAttemptId only.",
		(*checker).lateAgain},
	{"refused",
		"A command about a thing that the game does not know gets a definite answer, and the " +
			"same one again.",
		"Answer refused with a reasonCode, and keep that answer by its applyId.",
		(*checker).refused},
	{"unknown-members", "Members that a plugin does not know are tolerated.",
		"Read the members that you know, and ignore the others.", (*checker).unknownMembers},
	{"other-version", "Another schemaVersion is not answered applied.",
		"Do not answer if schemaVersion is not command-apply.v1.", (*checker).otherVersion},
	{"other-town", "A command for a town that the plugin does not host is not applied.",
		"Apply a command only if its townId is the town of its subject.",
		(*checker).otherTown},
	{"not-json", "An unreadable message is not answered applied, and the plugin goes on.",
		"Leave an unreadable message unanswered, and go on with the next one.",
		(*checker).notJSON},
	{"hosts", "A plugin answers the question of another one whether the town has a plugin.",
		"Subscribe to the hosts subject of each town, and answer with {} or {\"name\": …}.",
		(*checker).hosts},
	{"restart", "After a restart of the plugin the same id still gets the same answer.",
		"Write each answer to the disk before it is sent, and read them at the start.",
		(*checker).restart},
}

// Check tests the plugin of a subject, rule by rule. It returns ErrAbsent if there is none,
// ErrDenied if the user may not ask it, and ctx's error if ctx ends first.
func Check(ctx context.Context, nc *nats.Conn, config Config) ([]Row, error) {
	if config.Type == "" {
		config.Type, config.Argument = handoff.TalkToTownsfolk, "casual"
	}
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	if config.Quiet == 0 {
		config.Quiet = time.Second
	}
	c := &checker{Config: config, nc: nc, actor: "plugin-check-" + nuid.Next()}
	var done []Row
	for _, row := range rows {
		began := time.Now()
		found, err := "the first command has no answer that counts", errSkip
		if len(done) == 0 || done[0].Verdict == Pass {
			found, err = c.run(ctx, row.check)
		}
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		if len(done) == 0 && (errors.Is(err, ErrAbsent) || errors.Is(err, ErrDenied)) {
			return nil, err
		}
		r := Row{Name: row.name, Rule: row.rule, Todo: row.todo, Verdict: Pass, Found: found,
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

// checker asks one plugin.
type checker struct {
	Config
	nc    *nats.Conn
	actor string // of this run, so that no id of it was asked for before
	made  int

	first  *apply.Command // what answer asked for
	got    apply.Answer   // and what it got
	tooOld *apply.Command // what late asked for
}

// run runs a check with a new command.
func (c *checker) run(
	ctx context.Context, check func(*checker, context.Context, *apply.Command) (string, error),
) (string, error) {
	command, err := c.command(c.Argument)
	if err != nil {
		return "", err
	}
	return check(c, ctx, command)
}

// command makes a new command of the type to ask for.
func (c *checker) command(argument string) (*apply.Command, error) {
	return c.commandOf(c.Type, argument)
}

func (c *checker) commandOf(kind handoff.ProposalType, argument string) (*apply.Command, error) {
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
	if reason != "" { // the rules do not know it either
		expected = c.Town
	}
	return apply.NewCommand(h, runID, c.Town, expected), nil
}

// runID is the run that the commands name; there is none.
const runID = "00000000-0000-4000-8000-000000000000"

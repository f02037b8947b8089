package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/wire"
)

// rules are the rules in order, each with the remedy if it is broken. A check gets a command that was
// not requested before.
var rules = []struct {
	name, rule, todo string
	check            func(*checker, context.Context, *apply.Command) (found string, err error)
}{
	{"answer",
		"A command gets a valid command-applied.v1 with its applyId, and in the end applied " +
			"or refused.",
		"Answer on the reply subject of each request; answer in-progress while it takes long.",
		(*checker).answer},
	{"reported-town", "The snapshot of an applied answer is a snapshot.v1 of the town.",
		"Report the whole town with the same townId, or leave snapshot out.",
		(*checker).reportedTown},
	{"one-plugin", "A town has one plugin, and a request gets one definite answer.",
		"End the other plugin, or the connection that a reload left open; answer once.",
		(*checker).onePlugin},
	{"same-id", "The same id again gets the same answer.",
		"Keep each definite answer on disk by its applyId, and answer with that.",
		(*checker).sameID},
	{"later-attempt",
		"The same id in a later attempt gets the same answer, if that was applied or refused for " +
			"good.",
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
	{"hosts", "A plugin answers other plugins that ask who hosts its town.",
		"Subscribe to the hosts subject of each town, and answer with {} or {\"name\": …}.",
		(*checker).hosts},
	{"restart", "After a restart of the plugin the same id still gets the same answer.",
		"Write each answer to the disk before it is sent, and read them at the start.",
		(*checker).restart},
}

func (c *checker) answer(ctx context.Context, command *apply.Command) (string, error) {
	got, err := c.ask(ctx, command, request)
	if err != nil {
		return "", err
	}
	c.first, c.got = command, got
	return text(got), nil
}

func (c *checker) reportedTown(context.Context, *apply.Command) (string, error) {
	if c.got.Snapshot == nil {
		return "no state is reported: it is as expected", nil
	}
	state, err := town.Parse(c.got.Snapshot, schemas.Limits{})
	if err != nil {
		return "", err
	}
	if state.Snapshot.TownID != c.first.TownID {
		return "", fmt.Errorf("the reported state is of %q, not of %q",
			state.Snapshot.TownID, c.first.TownID)
	}
	return "a snapshot.v1 of the town", nil
}

func (c *checker) onePlugin(ctx context.Context, _ *apply.Command) (string, error) {
	data, err := request(c.first, c.Timeout)
	if err != nil {
		return "", err
	}
	answers, err := c.send(data)
	if err != nil {
		return "", err
	}
	defer func() { _ = answers.Unsubscribe() }()
	count := 0
	for until := time.Now().Add(c.Timeout); time.Now().Before(until); {
		got, err := next(ctx, answers, c.first.ApplyID, time.Until(until))
		if errors.Is(err, errSilent) {
			break
		}
		if err != nil {
			return "", err
		}
		if !got.Definite() {
			continue
		}
		if count++; count == 1 {
			until = time.Now().Add(c.Quiet)
		}
	}
	switch count {
	case 0:
		return fmt.Sprintf("no definite answer to one request within %s, so no second one either",
			c.Timeout), errSkip
	case 1:
		return fmt.Sprintf("one answer to one request, and no other within %s", c.Quiet), nil
	}
	return "", fmt.Errorf("%d definite answers came to one request: is there a second plugin?",
		count)
}

// same asks for a command, and compares its answer with an earlier one.
func (c *checker) same(
	ctx context.Context, command *apply.Command, before apply.GameAnswer,
) (string, error) {
	got, err := c.ask(ctx, command, request)
	if err == nil && text(got) != text(before) {
		err = fmt.Errorf("%s, after %s", text(got), text(before))
	}
	return text(got), err
}

func (c *checker) sameID(ctx context.Context, _ *apply.Command) (string, error) {
	return c.same(ctx, c.first, c.got)
}

func (c *checker) laterAttempt(ctx context.Context, _ *apply.Command) (string, error) {
	if c.got.Retryable {
		return "a later attempt may get another answer than " + text(c.got), errSkip
	}
	return c.same(ctx, nextAttempt(c.first), c.got)
}

// nextAttempt returns the command of the next attempt.
func nextAttempt(command *apply.Command) *apply.Command {
	again := *command
	again.LogicalAttemptID++
	return &again
}

func (c *checker) sameIDAtOnce(ctx context.Context, command *apply.Command) (string, error) {
	other := *command
	a, b, err := c.sendBoth(ctx, command, &other)
	if err == nil && text(a) != text(b) {
		err = fmt.Errorf("%s and %s for one id", text(a), text(b))
	}
	return text(a) + "; " + text(b), err
}

func (c *checker) twoAtOnce(ctx context.Context, one *apply.Command) (string, error) {
	two, err := c.command(c.Type, c.Argument)
	if err != nil {
		return "", err
	}
	a, b, err := c.sendBoth(ctx, one, two)
	return text(a) + "; " + text(b), err
}

func (c *checker) sendBoth(
	ctx context.Context, one, two *apply.Command,
) (first, second apply.GameAnswer, err error) {
	var asking errgroup.Group
	asking.Go(func() (err error) {
		second, err = c.ask(ctx, two, request)
		return err
	})
	first, err = c.ask(ctx, one, request)
	return first, second, errors.Join(err, asking.Wait())
}

func (c *checker) late(ctx context.Context, command *apply.Command) (string, error) {
	c.tooOld = command
	got, err := c.ask(ctx, command, func(*apply.Command, time.Duration) ([]byte, error) {
		command.Deadline = time.Now().Add(-time.Hour)
		return command.MarshalWire(time.Now())
	})
	switch {
	case errors.Is(err, errSilent):
		return "no answer", nil
	case err != nil:
		return "", err
	case got.Status == apply.Applied:
		return "", errors.New("applied, an hour after the deadline and with timeoutMs 0")
	case !got.Retryable && text(got) != text(c.got):
		return "", fmt.Errorf("%s: a refusal for good, though another attempt has time", text(got))
	}
	return text(got), nil
}

func (c *checker) lateAgain(ctx context.Context, _ *apply.Command) (string, error) {
	return c.likeFirst(c.ask(ctx, nextAttempt(c.tooOld), request))
}

// likeFirst fails unless an answer has the status of the answer to the first command.
func (c *checker) likeFirst(got apply.GameAnswer, err error) (string, error) {
	if err == nil && got.Status != c.got.Status {
		err = fmt.Errorf("%s, but a usual command was %s", text(got), text(c.got))
	}
	return text(got), err
}

func (c *checker) refused(ctx context.Context, _ *apply.Command) (string, error) {
	kind := c.Type
	if kind.Spec().Values != nil { // every argument of such a type is known
		kind = handoff.AdvanceProject
	}
	command, err := c.command(kind, "no-such-thing-"+strings.ToLower(c.actor[len(c.actor)-6:]))
	if err != nil {
		return "", err
	}
	got, err := c.ask(ctx, command, request)
	if err != nil {
		return "", err
	}
	return c.same(ctx, command, got)
}

func (c *checker) unknownMembers(ctx context.Context, command *apply.Command) (string, error) {
	return c.likeFirst(c.ask(ctx, command,
		func(command *apply.Command, left time.Duration) ([]byte, error) {
			return changed(command, left, "ofALaterVersion",
				map[string]any{"deep": []any{1, nil, "x"}})
		}))
}

func (c *checker) otherVersion(ctx context.Context, command *apply.Command) (string, error) {
	data, err := changed(command, c.Timeout, "schemaVersion", "command-apply.v2")
	if err != nil {
		return "", err
	}
	return c.notApplied(ctx, command.ApplyID, data)
}

func (c *checker) otherTown(ctx context.Context, command *apply.Command) (string, error) {
	data, err := changed(command, c.Timeout, "townId", command.TownID+" of another world")
	if err != nil {
		return "", err
	}
	return c.notApplied(ctx, command.ApplyID, data)
}

func (c *checker) notJSON(ctx context.Context, command *apply.Command) (string, error) {
	for _, data := range []string{`{"schemaVersion": "command-apply.v1", "applyId":`,
		"\x00\xff", ""} {
		if _, err := c.notApplied(ctx, command.ApplyID, []byte(data)); err != nil {
			return "", err
		}
	}
	got, err := c.ask(ctx, command, request)
	if err != nil {
		return "", fmt.Errorf("behind it a command gets none: %w", err)
	}
	return "no answer; then " + text(got), nil
}

// notApplied sends bytes once and fails if the answer is applied.
func (c *checker) notApplied(ctx context.Context, id string, data []byte) (string, error) {
	answers, err := c.send(data)
	if err != nil {
		return "", err
	}
	defer func() { _ = answers.Unsubscribe() }()
	found := "no answer"
	for until := time.Now().Add(c.Quiet); time.Now().Before(until); {
		got, err := next(ctx, answers, id, time.Until(until))
		switch {
		case errors.Is(err, errSilent):
			return found, nil
		case errors.Is(err, ErrAbsent):
			return "", err
		case err != nil:
			found = err.Error() // the engine ignores an invalid answer too
		case got.Status == apply.Applied:
			return "", errors.New("applied")
		default:
			found = text(got)
		}
	}
	return found, nil
}

// hosts asks who hosts the town, like a plugin that starts. It asks up to five times, since a busy
// machine may be late.
func (c *checker) hosts(ctx context.Context, _ *apply.Command) (string, error) {
	world, townID := strings.Split(c.Subject, ".")[2], c.Town.Snapshot.TownID
	for range 5 {
		found, err := plugin.Hosts(ctx, c.nc, world, townID)
		if err != nil {
			return "", err
		}
		if len(found) > 0 {
			return fmt.Sprintf("answered as %q", found[0].Name), nil
		}
	}
	return "", fmt.Errorf("no answer on %s", wire.HostsSubject(world, wire.TownToken(townID)))
}

// restart waits until the plugin has ended and started again.
func (c *checker) restart(ctx context.Context, _ *apply.Command) (string, error) {
	if c.Restart == 0 {
		return "--restart says to wait for one", errSkip
	}
	c.Ask("end the plugin now, and start it again")
	away := false
	for ends := time.Now().Add(c.Restart); time.Now().Before(ends) && ctx.Err() == nil; {
		data, err := request(c.first, c.Timeout) // answered before, so it changes nothing
		if err != nil {
			return "", err
		}
		_, err = c.nc.Request(c.Subject, data, c.Quiet)
		gone := errors.Is(err, nats.ErrNoResponders)
		if away && !gone { // also if NATS only was late with its word that none is subscribed
			if found, err := c.same(ctx, c.first, c.got); !errors.Is(err, ErrAbsent) {
				return found, err
			}
		}
		if gone && !away {
			away = true
			c.Ask("the plugin is away: it has to come back")
		}
		_ = backoff.Sleep(ctx, busyInterval/5)
	}
	return fmt.Sprintf("no restart was seen within %s", c.Restart), errSkip
}

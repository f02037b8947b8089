package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/town"
)

func (c *checker) answer(ctx context.Context, command *apply.Command) (string, error) {
	got, err := c.askUntilAnswered(ctx, command)
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
	a, err := c.askFirst()
	if err != nil {
		return "", err
	}
	defer a.close()
	answers := 0
	for until := time.Now().Add(c.Timeout); time.Now().Before(until); {
		got, err := a.next(ctx, time.Until(until))
		if errors.Is(err, errSilent) {
			break
		}
		if err != nil {
			return "", err
		}
		if !definite(got) {
			continue
		}
		if answers++; answers == 1 {
			until = time.Now().Add(c.Quiet)
		}
	}
	switch answers {
	case 0:
		return fmt.Sprintf("no definite answer to one request within %s, so no second one either",
			c.Timeout), errSkip
	case 1:
		return fmt.Sprintf("one answer to one request, and no other within %s", c.Quiet), nil
	}
	return "", fmt.Errorf("%d definite answers came to one request: is there a second plugin?",
		answers)
}

// same asks for the first command again, and compares.
func (c *checker) same(ctx context.Context, attempt int64) (string, error) {
	again := *c.first
	again.LogicalAttemptID = attempt
	got, err := c.askUntilAnswered(ctx, &again)
	if err != nil {
		return "", err
	}
	if text(got) != text(c.got) {
		return "", fmt.Errorf("%s, after %s", text(got), text(c.got))
	}
	return text(got), nil
}

func (c *checker) sameID(ctx context.Context, _ *apply.Command) (string, error) {
	return c.same(ctx, c.first.LogicalAttemptID)
}

func (c *checker) laterAttempt(ctx context.Context, _ *apply.Command) (string, error) {
	if c.got.Retryable {
		return "a later attempt may get another answer than " + text(c.got), errSkip
	}
	return c.same(ctx, c.first.LogicalAttemptID+1)
}

func (c *checker) sameIDAtOnce(ctx context.Context, command *apply.Command) (string, error) {
	other := *command
	return c.atOnce(ctx, command, &other, func(a, b apply.Answer) error {
		if text(a) != text(b) {
			return fmt.Errorf("%s and %s for one id", text(a), text(b))
		}
		return nil
	})
}

func (c *checker) twoAtOnce(ctx context.Context, one *apply.Command) (string, error) {
	two, err := c.command(c.Argument)
	if err != nil {
		return "", err
	}
	return c.atOnce(ctx, one, two, func(apply.Answer, apply.Answer) error { return nil })
}

// atOnce asks for two commands at once.
func (c *checker) atOnce(
	ctx context.Context, one, two *apply.Command, compare func(a, b apply.Answer) error,
) (string, error) {
	var got [2]apply.Answer
	var errs [2]error
	done := make(chan struct{})
	go func() {
		defer close(done)
		got[1], errs[1] = c.askUntilAnswered(ctx, two)
	}()
	got[0], errs[0] = c.askUntilAnswered(ctx, one)
	<-done
	if err := errors.Join(errs[:]...); err != nil {
		return "", err
	}
	return text(got[0]) + "; " + text(got[1]), compare(got[0], got[1])
}

func (c *checker) late(ctx context.Context, command *apply.Command) (string, error) {
	c.tooOld = command
	got, err := c.askUntilAnsweredAs(ctx, command, func() ([]byte, error) {
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
	again := *c.tooOld
	again.LogicalAttemptID++
	got, err := c.askUntilAnswered(ctx, &again)
	if err != nil {
		return "", err
	}
	if got.Status != c.got.Status {
		return "", fmt.Errorf("%s, but the same command in time was %s", text(got), text(c.got))
	}
	return text(got), nil
}

func (c *checker) refused(ctx context.Context, _ *apply.Command) (string, error) {
	kind := c.Type
	if kind.Spec().Values != nil { // a closed set: no argument of it is unknown
		kind = handoff.AdvanceProject
	}
	command, err := c.commandOf(kind, "no-such-thing-"+strings.ToLower(c.actor[len(c.actor)-6:]))
	if err != nil {
		return "", err
	}
	got, err := c.askUntilAnswered(ctx, command)
	if err != nil {
		return "", err
	}
	again, err := c.askUntilAnswered(ctx, command)
	if err != nil {
		return "", err
	}
	if text(again) != text(got) {
		return "", fmt.Errorf("%s, and for the same attempt again %s", text(got), text(again))
	}
	return text(got), nil
}

// changed returns a request for a command with another value of a member.
func changed(
	command *apply.Command, left time.Duration, member string, value any,
) ([]byte, error) {
	data, err := request(command, left)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	members[member] = value
	return json.Marshal(members, json.Deterministic(true))
}

func (c *checker) unknownMembers(ctx context.Context, command *apply.Command) (string, error) {
	got, err := c.askUntilAnsweredAs(ctx, command, func() ([]byte, error) {
		return changed(command, c.Timeout, "ofALaterVersion",
			map[string]any{"deep": []any{1, nil, "x"}})
	})
	if err != nil {
		return "", err
	}
	if got.Status != c.got.Status {
		return "", fmt.Errorf("%s, but the same command without them was %s",
			text(got), text(c.got))
	}
	return text(got), nil
}

// notApplied sends bytes once and fails if the answer is applied.
func (c *checker) notApplied(ctx context.Context, id string, data []byte) (string, error) {
	a, err := c.ask(id, data)
	if err != nil {
		return "", err
	}
	defer a.close()
	found := "no answer"
	for until := time.Now().Add(c.Quiet); time.Now().Before(until); {
		got, err := a.next(ctx, time.Until(until))
		switch {
		case errors.Is(err, errSilent):
			return found, nil
		case errors.Is(err, ErrAbsent):
			return "", err
		case err != nil:
			found = err.Error() // the engine ignores it too
		case got.Status == apply.Applied:
			return "", errors.New("applied")
		default:
			found = text(got)
		}
	}
	return found, nil
}

func (c *checker) otherVersion(ctx context.Context, command *apply.Command) (string, error) {
	return c.notAppliedWith(ctx, command, "schemaVersion", "command-apply.v2")
}

func (c *checker) otherTown(ctx context.Context, command *apply.Command) (string, error) {
	return c.notAppliedWith(ctx, command, "townId", command.TownID+" of another world")
}

// notAppliedWith is notApplied for a command with another value of a member.
func (c *checker) notAppliedWith(
	ctx context.Context, command *apply.Command, member, value string,
) (string, error) {
	data, err := changed(command, c.Timeout, member, value)
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
	got, err := c.askUntilAnswered(ctx, command)
	if err != nil {
		return "", fmt.Errorf("behind it a command gets none: %w", err)
	}
	return "no answer; then " + text(got), nil
}

// restart waits until the plugin has gone and is back.
func (c *checker) restart(ctx context.Context, _ *apply.Command) (string, error) {
	if c.Restart == 0 {
		return "--restart says to wait for one", errSkip
	}
	c.say("end the plugin now, and start it again")
	ends := time.Now().Add(c.Restart)
	away := false
	for time.Now().Before(ends) && ctx.Err() == nil {
		there, err := c.there(ctx)
		if err != nil {
			return "", err
		}
		if away && there {
			return c.same(ctx, c.first.LogicalAttemptID)
		}
		if !away && !there {
			away = true
			c.say("the plugin is away: it has to come back")
		}
	}
	return fmt.Sprintf("no restart was seen within %s", c.Restart), errSkip
}

func (c *checker) say(what string) {
	if c.Ask != nil {
		c.Ask(what)
	}
}

// there asks for the first command again, which changes nothing, and reports whether a plugin is
// subscribed.
func (c *checker) there(ctx context.Context) (bool, error) {
	a, err := c.askFirst()
	if err != nil {
		return false, err
	}
	defer a.close()
	_, err = a.next(ctx, c.Quiet)
	_ = backoff.Sleep(ctx, laterPause/5)
	return !errors.Is(err, ErrAbsent), nil
}

package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
)

// Pauses before a request is sent again, like the engine's.
const (
	resendInterval = 2 * time.Second
	busyInterval   = 500 * time.Millisecond
)

var errSilent = errors.New("no answer came")

// send sends a request once, and returns the subscription of its answers. The caller ends it.
func (c *checker) send(data []byte) (*nats.Subscription, error) {
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return nil, err
	}
	return sub, c.nc.PublishRequest(c.Subject, sub.Subject, data)
}

// next waits, at most for wait, for the next answer to the command with an id. The error is
// errSilent, ErrAbsent, or an error about an invalid answer.
func next(
	ctx context.Context, answers *nats.Subscription, id string, wait time.Duration,
) (apply.GameAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	msg, err := answers.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return apply.GameAnswer{}, ErrAbsent
	case err != nil && ctx.Err() != nil:
		return apply.GameAnswer{}, errSilent
	case err != nil:
		return apply.GameAnswer{}, err
	}
	answer, err := apply.ParseAnswer(msg.Data, id, schemas.Limits{})
	if err != nil {
		return apply.GameAnswer{}, fmt.Errorf("the answer is not valid: %w", err)
	}
	return answer, nil
}

func request(command *apply.Command, left time.Duration) ([]byte, error) {
	now := time.Now()
	command.Deadline = now.Add(left)
	return command.MarshalWire(now)
}

// changed returns a request with another value of a member.
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

// ask repeats the request that write makes of a command, like the engine, until a definite answer
// comes or Timeout passes.
func (c *checker) ask(
	ctx context.Context, command *apply.Command,
	write func(command *apply.Command, left time.Duration) ([]byte, error),
) (none apply.GameAnswer, err error) {
	within, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answers, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return none, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	trouble := errSilent
	for ends := time.Now().Add(c.Timeout); within.Err() == nil; {
		data, err := write(command, time.Until(ends))
		if err == nil {
			err = c.nc.PublishRequest(c.Subject, answers.Subject, data)
		}
		if err != nil {
			return none, err
		}
		_ = c.nc.FlushWithContext(within) // NATS refuses a request before it answers this
		if c.denied() {
			return none, fmt.Errorf("%w: %w", ErrDenied, c.nc.LastError())
		}
		answer, err := next(within, answers, command.ApplyID, resendInterval)
		for err == nil && !answer.Definite() {
			trouble = fmt.Errorf("the last answer is %s", answer.Status)
			pause := cmp.Or(time.Duration(answer.RetryAfterMs)*time.Millisecond, busyInterval)
			answer, err = next(within, answers, command.ApplyID, pause)
		}
		if !errors.Is(err, errSilent) {
			return answer, err
		}
	}
	return none, fmt.Errorf("no definite answer within %s: %w", c.Timeout, trouble)
}

// denied reports whether NATS has refused a request.
func (c *checker) denied() bool {
	last := c.nc.LastError() // names the subject, or one that ends with it (layout.DivertedSubject)
	return errors.Is(last, nats.ErrPermissionViolation) &&
		strings.Contains(last.Error(), c.Subject+`"`)
}

func text(a apply.GameAnswer) string {
	said := string(a.Status)
	if a.Status == apply.Refused {
		said += " " + a.ReasonCode
		if a.Retryable {
			said += ", retryable"
		}
	}
	return said
}

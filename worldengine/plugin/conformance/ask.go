package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/apply"
)

// Pauses before a request is sent again, like the engine's.
const (
	resend     = 2 * time.Second
	laterPause = 500 * time.Millisecond
)

var errSilent = errors.New("no answer came")

// asked sends requests for one id, and receives their answers until it is closed.
type asked struct {
	c   *checker
	id  string
	sub *nats.Subscription
}

func (c *checker) ask(id string, requests ...[]byte) (*asked, error) {
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	a := &asked{c, id, sub}
	for i := 0; err == nil && i < len(requests); i++ {
		err = a.send(requests[i])
	}
	return a, err
}

// askFirst sends one more request for the first command.
func (c *checker) askFirst() (*asked, error) {
	data, err := request(c.first, c.Timeout)
	if err != nil {
		return nil, err
	}
	return c.ask(c.first.ApplyID, data)
}

func (a *asked) close() { _ = a.sub.Unsubscribe() }

func (a *asked) send(data []byte) error {
	return a.c.nc.PublishRequest(a.c.Subject, a.sub.Subject, data)
}

// next returns the next answer within wait. The error is errSilent, ErrAbsent, or an error about an
// invalid answer.
func (a *asked) next(ctx context.Context, wait time.Duration) (apply.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	msg, err := a.sub.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return apply.Answer{}, ErrAbsent
	case err != nil && ctx.Err() != nil:
		return apply.Answer{}, errSilent
	case err != nil:
		return apply.Answer{}, err
	}
	answer, err := apply.ParseAnswer(msg.Data, a.id, schemas.Limits{})
	if err != nil {
		return apply.Answer{}, fmt.Errorf("the answer is not valid: %w", err)
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

// askUntilAnswered repeats a request like the engine until a definite answer comes or Timeout
// passes.
func (c *checker) askUntilAnswered(
	ctx context.Context, command *apply.Command,
) (apply.Answer, error) {
	return c.askWith(ctx, command, request)
}

// askWith is askUntilAnswered with requests that write makes.
func (c *checker) askWith(
	ctx context.Context, command *apply.Command,
	write func(command *apply.Command, left time.Duration) ([]byte, error),
) (none apply.Answer, err error) {
	a, err := c.ask(command.ApplyID)
	if err != nil {
		return none, err
	}
	defer a.close()
	trouble := errSilent
	for ends := time.Now().Add(c.Timeout); time.Now().Before(ends) && ctx.Err() == nil; {
		data, err := write(command, time.Until(ends))
		if err == nil {
			err = a.send(data)
		}
		if err == nil && c.first == nil { // no answer has proved the permission yet
			err = c.denied()
		}
		if err != nil {
			return none, err
		}
		for until := time.Now().Add(resend); time.Now().Before(until) && time.Now().Before(ends); {
			answer, err := a.next(ctx, min(time.Until(until), time.Until(ends)))
			if errors.Is(err, errSilent) {
				break
			}
			if err != nil || definite(answer) {
				return answer, err
			}
			trouble = fmt.Errorf("the last answer is %s", answer.Status)
			pause := laterPause
			if answer.RetryAfterMs > 0 {
				pause = time.Duration(answer.RetryAfterMs) * time.Millisecond
			}
			until = time.Now().Add(pause)
		}
	}
	return none, fmt.Errorf("no definite answer within %s: %w", c.Timeout, trouble)
}

// denied returns ErrDenied if the server has reported that the user may not ask. The report comes
// before the answer to the flush.
func (c *checker) denied() error {
	if err := c.nc.FlushTimeout(c.Timeout); err != nil {
		return nil // the missing answer shows that the connection is lost
	}
	last := c.nc.LastError() // names the subject, or one that ends with it (wire.AstraySubject)
	if errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(),
		c.Subject+`"`) {
		return fmt.Errorf("%w: %w", ErrDenied, last)
	}
	return nil
}

func definite(a apply.Answer) bool { return a.Status == apply.Applied || a.Status == apply.Refused }

func text(a apply.Answer) string {
	said := string(a.Status)
	if a.Status == apply.Refused {
		said += " " + a.ReasonCode
		if a.Retryable {
			said += ", retryable"
		}
	}
	return said
}

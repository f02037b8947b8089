package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/client"
	"worldengine/worldengine/wire"
)

// refillSteps is how many handoffs of a town are made at once when those made ahead ran out.
const refillSteps = 64

// maxExamples bounds how many wrong answers the report describes.
const maxExamples = 5

// worker drives its towns in turn, one request at a time.
type worker struct {
	nc      *nats.Conn
	subject string
	timeout time.Duration
	targets []*target
	pace    *pacer

	latencies []time.Duration
	counts    map[handoff.Status]int
	retries   int
	pause     time.Duration // making handoffs while it is timed
	wrong     int
	examples  []string
}

// reset forgets what was counted.
func (w *worker) reset() {
	w.latencies, w.counts = make([]time.Duration, 0, 1<<14), map[handoff.Status]int{}
	w.retries, w.pause = 0, 0
}

// run sends handoffs until the deadline, and at least one for each town. A wrong answer is counted
// and ends its town; an error means that no answer came.
func (w *worker) run(ctx context.Context, deadline time.Time) error {
	for round, lost := 0, 0; lost < len(w.targets); round++ {
		lost = 0
		for _, t := range w.targets {
			now := time.Now()
			if round > 0 && !now.Before(deadline) || ctx.Err() != nil {
				return ctx.Err()
			}
			if t.lost {
				lost++
				continue
			}
			if len(t.steps) == 0 {
				if err := t.refill(refillSteps); err != nil {
					return err
				}
				w.pause += time.Since(now)
			}
			due, ok := w.pace.next(ctx, deadline)
			if !ok {
				return ctx.Err()
			}
			if err := w.send(ctx, t, due); err != nil {
				return err
			}
		}
	}
	return nil
}

// send sends the town's next handoff, which was due at start, and holds the answer against what it
// must be.
func (w *worker) send(ctx context.Context, t *target, start time.Time) error {
	next := &t.steps[0]
	reply, retried, err := w.request(ctx, next.data)
	if err != nil {
		return err
	}
	w.latencies = append(w.latencies, time.Since(start))
	if !(bytes.Contains(reply.Data, next.result) && bytes.Contains(reply.Data, next.after)) {
		if difference := disagreement(next, reply, retried); difference != "" {
			w.blame(t.id + ": " + difference)
			t.lost = true
			return nil
		}
	}
	w.counts[next.status]++
	t.last = reply.Data
	if next.after != nil {
		t.after = next.after
	}
	t.steps = t.steps[1:]
	return nil
}

// request asks until the answer is none that asks to be asked again.
func (w *worker) request(
	ctx context.Context, data []byte,
) (reply *nats.Msg, retried bool, err error) {
	deadline := time.Now().Add(w.timeout)
	for {
		reply, err := w.nc.Request(w.subject, data, time.Until(deadline))
		if err != nil {
			return nil, retried, unanswered(err, w.timeout)
		}
		if reply.Header.Get(wire.RunIDHeader) != "" {
			return reply, retried, nil
		}
		refused := client.ReplyErrorOf(reply)
		if refused == nil || refused.RetryAfter == 0 ||
			refused.RetryAfter >= time.Until(deadline) ||
			refused.Status != http.StatusTooManyRequests &&
				refused.Status != http.StatusServiceUnavailable {
			return reply, retried, nil
		}
		w.retries++
		retried = true
		if err := backoff.Sleep(ctx, refused.RetryAfter); err != nil {
			return nil, retried, err
		}
	}
}

func unanswered(err error, timeout time.Duration) error {
	if errors.Is(err, nats.ErrTimeout) {
		return &client.UnavailableError{
			Code: "TIMEOUT", Message: fmt.Sprintf("no answer within %s", timeout), Cause: err,
		}
	}
	return &client.UnavailableError{
		Code: "CONNECTION", Message: "no answer: " + err.Error(), Cause: err,
	}
}

func (w *worker) blame(example string) {
	w.wrong++
	if len(w.examples) < maxExamples {
		w.examples = append(w.examples, example)
	}
}

// disagreement reads an answer that does not have the expected members as they are usually
// written, and says what is wrong with it, or "".
func disagreement(want *step, reply *nats.Msg, retried bool) string {
	if refused := client.ReplyErrorOf(reply); refused != nil {
		return fmt.Sprintf("expected %s, got the error %s", want.status, refused.Error())
	}
	r, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	if err != nil {
		return fmt.Sprintf("expected %s, got what is not a valid result: %v", want.status, err)
	}
	// Asked again after a 503, a handoff may have been accepted the first time.
	if of := r.Evaluation.DuplicateCheck.DuplicateOf; retried && of != nil &&
		bytes.Equal(resultMember(*of), want.result) {
		return ""
	}
	if !bytes.Equal(resultMember(r.ResultID), want.result) {
		return fmt.Sprintf("expected %s with %s, got %s %s with %q", want.status, want.result,
			r.Status, r.ReasonCode, r.ResultID)
	}
	return ""
}

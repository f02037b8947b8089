package emit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/client"
)

// Limits of the pause between two tries, unless the authority asks for a longer one.
const (
	minRetryDelay = 20 * time.Millisecond
	maxRetryDelay = 2 * time.Second
)

// noRetry marks an error that a retry does not cure.
const noRetry time.Duration = -1

// authority asks the append authority of a world. It is safe for concurrent use.
type authority struct {
	conn    *nats.Conn
	subject string
	timeout time.Duration // of one try
}

// append sends w until the authority has stored or refused it, or ctx is done.
func (a *authority) append(
	ctx context.Context, townID string, w *runevents.Write,
) (runevents.Appended, error) {
	body, err := json.Marshal(struct {
		TownID string            `json:"townId"`
		Events []runevents.Write `json:"events"`
	}{townID, []runevents.Write{*w}})
	if err != nil {
		return runevents.Appended{}, fmt.Errorf("emit: %s cannot be written: %w", w.EventType, err)
	}
	pauses := backoff.Backoff{Min: minRetryDelay, Max: maxRetryDelay}
	for {
		appended, after, err := a.request(ctx, body)
		if err == nil || after == noRetry {
			return appended, err
		}
		if ended := backoff.Sleep(ctx, max(after, pauses.Next())); ended != nil {
			return runevents.Appended{}, fmt.Errorf(
				"emit: %s of run %s is not acknowledged yet: %w; the last try: %w",
				w.EventType, w.RunID, ended, err)
		}
	}
}

// request asks the authority once. With an error it returns the least pause before the next try, or
// noRetry.
func (a *authority) request(
	ctx context.Context, body []byte,
) (appended runevents.Appended, after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	reply, err := a.conn.RequestWithContext(ctx, a.subject, body)
	switch {
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
		return appended, noRetry, fmt.Errorf("emit: append: %w", err)
	case err != nil: // no answer: the next try learns whether the event was stored
		return appended, 0, fmt.Errorf("emit: append: %w", err)
	}
	if refused := client.ReplyErrorOf(reply); refused != nil {
		if refused.Status == http.StatusTooManyRequests ||
			refused.Status == http.StatusServiceUnavailable {
			return appended, refused.RetryAfter, refused
		}
		return appended, noRetry, refused
	}
	appended, err = appendedOf(reply.Data)
	return appended, noRetry, err
}

// appendedOf reads a run-append-reply.v1 to one event.
func appendedOf(data []byte) (runevents.Appended, error) {
	var answer struct {
		Appended []runevents.Appended `json:"appended"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return runevents.Appended{}, fmt.Errorf(
			"emit: the answer to an append cannot be read: %w", err)
	}
	if len(answer.Appended) != 1 {
		return runevents.Appended{}, fmt.Errorf(
			"emit: the authority answered an append of one event with %d", len(answer.Appended))
	}
	return answer.Appended[0], nil
}

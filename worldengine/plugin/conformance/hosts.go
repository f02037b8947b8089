package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/wire"
)

// hosts asks who hosts the town, as another plugin does that starts.
func (c *checker) hosts(ctx context.Context, _ *apply.Command) (string, error) {
	at := strings.Split(c.Subject, ".")
	msg := nats.NewMsg(wire.HostsSubject(at[2], at[4]))
	msg.Header.Set(wire.AskerHeader, c.actor)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders), ctx.Err() != nil:
		return "", fmt.Errorf("no answer on %s", msg.Subject)
	case err != nil:
		return "", err
	}
	var answer struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return "", fmt.Errorf("the answer on %s is not valid: %w", msg.Subject, err)
	}
	return fmt.Sprintf("answered as %q", answer.Name), nil
}

package service

import (
	"context"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine"
	"worldengine/worldengine/messages"
)

// runRetry tries the handoff of a run again. It waits for the result as long as approval.decide
// does.
func (s *Service) runRetry(ctx context.Context, given worldengine.Signal) (*nats.Msg, error) {
	retried, err := s.engine.Retry(ctx, given, submitWait)
	if err != nil {
		return nil, err
	}
	body := messages.Retried{
		TownID: retried.TownID, HandoffID: retried.HandoffID, RetryOf: given.RunID,
		RunID: retried.RunID,
	}
	if retried.Answer != nil {
		body.Result = retried.Answer.JSON
	}
	return reply(body)
}

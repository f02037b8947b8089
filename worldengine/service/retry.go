package service

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine"
)

// runRetry tries the handoff of a run again. It waits for the result as long as approval.decide
// does.
func (s *Service) runRetry(ctx context.Context, given worldengine.Signal) ([]byte, error) {
	retried, err := s.engine.Retry(ctx, given, submitWait)
	if err != nil {
		return nil, err
	}
	body := struct {
		TownID    string `json:"townId"`
		HandoffID string `json:"handoffId"`
		RetryOf   string `json:"retryOf"`
		RunID     string `json:"runId"`
		// Result is left out where there is none yet.
		Result jsontext.Value `json:"result,omitzero"`
	}{retried.TownID, retried.HandoffID, given.RunID, retried.RunID, nil}
	if retried.Answer != nil {
		body.Result = retried.Answer.JSON
	}
	return reply(body)
}

package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

var (
	// errUnknownRevision is the answer to a request for a revision that there is not.
	errUnknownRevision = errors.New("service: " + wire.ResultRevisionHeader +
		" must be 0, the form of the contract, or 1; the request was not looked at")
	// errRevisionLost is the answer to a result.get of revision 1 for a result that an earlier
	// engine stored without what revision 1 says beyond it, and whose run's events are gone.
	errRevisionLost = errors.New("service: the result is not kept with what revision 1 needs: " +
		"ask for revision 0")
)

// firstEventsTimeout bounds the reading of a run's first events for a result of an earlier engine.
const firstEventsTimeout = 2 * time.Second

// revisionOf returns the revision that a request asks for.
func (s *Service) revisionOf(header nats.Header) (handoff.Revision, error) {
	asked, given := header[wire.ResultRevisionHeader]
	switch {
	case !given:
		return s.config.Revision, nil
	case len(asked) == 1 && asked[0] == "0":
		return handoff.Revision0, nil
	case len(asked) == 1 && asked[0] == "1":
		return handoff.Revision1, nil
	}
	return 0, errUnknownRevision
}

// revisionHeader returns the header that names the revision of an answer.
func revisionHeader(revision handoff.Revision) nats.Header {
	return nats.Header{wire.ResultRevisionHeader: {fmt.Sprint(int(revision))}}
}

// resultOf returns the bytes of the result in the answer to a handoff.
func (s *Service) resultOf(r *request, answer *worldengine.Answer) ([]byte, error) {
	if r.revision == handoff.Revision0 {
		return answer.JSON, nil
	}
	addition := handoff.AdditionOf(r.handoff)
	addition.Embodiment = answer.Embodiment
	var first *string
	if answer.First != nil {
		ctx, cancel := context.WithTimeout(s.ctx, firstEventsTimeout)
		defer cancel()
		one, err := s.firstRevision1(ctx, r.handoff, answer.First)
		switch {
		case err == nil:
			first = &one.ExecutionID
		case !errors.Is(err, errRevisionLost): // else the first result cannot be named
			return nil, err
		}
	}
	one, err := answer.Result.Revision1(addition, first)
	if err != nil {
		return nil, err
	}
	return one.MarshalWire()
}

// firstRevision1 returns revision 1 of the result that h is a duplicate of. Where the receipt is of
// an earlier engine and of the same handoff, h says what the receipt does not.
func (s *Service) firstRevision1(
	ctx context.Context, h *handoff.Handoff, receipt *dedupe.Receipt,
) (*handoff.Result1, error) {
	if receipt.Addition == nil && receipt.HandoffID == h.HandoffID {
		return revision1Of(receipt, handoff.AdditionOf(h))
	}
	addition, err := s.additionOf(ctx, receipt)
	if err != nil {
		return nil, err
	}
	return revision1Of(receipt, addition)
}

// storedRevision1 returns the bytes of revision 1 of a receipt's result.
func (s *Service) storedRevision1(ctx context.Context, receipt *dedupe.Receipt) ([]byte, error) {
	addition, err := s.additionOf(ctx, receipt)
	if err != nil {
		return nil, err
	}
	one, err := revision1Of(receipt, addition)
	if err != nil {
		return nil, err
	}
	return one.MarshalWire()
}

func revision1Of(receipt *dedupe.Receipt, addition handoff.Addition) (*handoff.Result1, error) {
	result, err := handoff.ParseResult(receipt.Result,
		schemas.Limits{Bytes: len(receipt.Result) + 1})
	if err != nil {
		return nil, fmt.Errorf("service: the receipt of run %s: %w", receipt.RunID, err)
	}
	return result.Revision1(addition, nil)
}

// additionOf returns what revision 1 says beyond a receipt's result: from the receipt or, where an
// earlier engine wrote it, from the start of the run.
func (s *Service) additionOf(
	ctx context.Context, receipt *dedupe.Receipt,
) (handoff.Addition, error) {
	if receipt.Addition != nil {
		addition := *receipt.Addition
		addition.TownID = receipt.TownID
		return addition, nil
	}
	const first = 3 // RunStarted is the first event of a run, or the one behind RunQueued
	page, err := s.engine.Runs().Events(ctx, receipt.RunID, 0, first)
	if errors.Is(err, runs.ErrUnknownRun) {
		return handoff.Addition{}, errRevisionLost
	}
	if err != nil {
		return handoff.Addition{}, err
	}
	for _, data := range page.Events {
		var event struct {
			EventType runevents.EventType `json:"eventType"`
			Payload   struct {
				ActorID string               `json:"actorId"`
				Type    handoff.ProposalType `json:"type"`
			} `json:"payload"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return handoff.Addition{}, fmt.Errorf("service: an event of run %s: %w",
				receipt.RunID, err)
		}
		if event.EventType == runevents.RunStarted {
			return handoff.Addition{
				TownID: receipt.TownID, ActorID: event.Payload.ActorID,
				ProposalType: event.Payload.Type,
			}, nil
		}
	}
	return handoff.Addition{}, errRevisionLost
}

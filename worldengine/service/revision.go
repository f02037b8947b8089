package service

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/wire"
)

// errUnknownRevision is the answer to a request for a revision that there is not.
var errUnknownRevision = errors.New("service: " + wire.ResultRevisionHeader +
	" must be 0, the form of the contract, or 1; the request was not looked at")

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
func resultOf(
	h *handoff.Handoff, revision handoff.Revision, answer *worldengine.Answer,
) ([]byte, error) {
	if revision == handoff.Revision0 {
		return answer.JSON, nil
	}
	addition := handoff.AdditionOf(h)
	addition.Embodiment = answer.Embodiment
	var first *string
	if answer.First != nil {
		one, err := revision1Of(answer.First)
		if err != nil {
			return nil, err
		}
		first = &one.ExecutionID
	}
	one, err := answer.Result.Revision1(addition, first)
	if err != nil {
		return nil, err
	}
	return one.MarshalWire()
}

// storedRevision1 returns the bytes of revision 1 of a receipt's result.
func storedRevision1(receipt *dedupe.Receipt) ([]byte, error) {
	one, err := revision1Of(receipt)
	if err != nil {
		return nil, err
	}
	return one.MarshalWire()
}

func revision1Of(receipt *dedupe.Receipt) (*handoff.Result1, error) {
	result, err := handoff.ParseResult(receipt.Result,
		schemas.Limits{Bytes: len(receipt.Result) + 1})
	if err == nil && receipt.Addition == nil {
		err = errors.New("it has no addition")
	}
	if err != nil {
		return nil, fmt.Errorf("service: the receipt of run %s: %w", receipt.RunID, err)
	}
	addition := *receipt.Addition
	addition.TownID = receipt.TownID
	return result.Revision1(addition, nil)
}

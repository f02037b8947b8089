package service

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/dedupe"
	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/trace"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/wire"
)

func (w *ServedWorld) handoff(in *incoming) (any, error) {
	h, revision, err := w.parseHandoff(in)
	if err != nil {
		return nil, err
	}
	reply := func(answer engine.Answer) (any, error) {
		took := time.Since(in.start)
		w.engine.Status().RecordAnswerTime(answer.RunID, took)
		if w.config.Metrics != nil {
			w.config.Metrics.Handoff(answer.Result.Status, took)
		}
		body, err := resultOf(h, revision, &answer)
		header := revisionHeader(revision)
		header[wire.RunIDHeader] = []string{answer.RunID}
		return &nats.Msg{Data: body, Header: header}, err
	}
	return nil, w.engine.Handoffs().Submit(h, in.data, trace.Extract(in.header), engineReply[engine.Answer]{w, in, reply})
}

// dryRun judges a handoff, and executes nothing.
func (w *ServedWorld) dryRun(in *incoming) (any, error) {
	h, revision, err := w.parseHandoff(in)
	if err != nil {
		return nil, err
	}
	judged, err := w.engine.Handoffs().DryRun(w.ctx, h)
	if err != nil {
		return nil, err
	}
	body, err := resultOf(h, revision, &judged.Answer)
	if err != nil {
		return nil, err
	}
	header := revisionHeader(revision)
	header[wire.DryRunHeader] = []string{"true"}
	if !judged.Binding.Spec().BuiltIn && judged.Result.Executed {
		header[wire.DryRunApplyHeader] = []string{string(judged.Binding)}
	}
	return &nats.Msg{Data: body, Header: header}, nil
}

// parseHandoff returns a handoff, and the revision of results that its request asks for. It refuses
// the handoff if the sender may not act on its town, or may not speak for its actor.
func (w *ServedWorld) parseHandoff(in *incoming) (*handoff.Handoff, handoff.Revision, error) {
	revision, err := w.revisionOf(in.header)
	if err != nil {
		return nil, 0, err
	}
	h, err := handoff.Parse(in.data, schemas.Limits{Bytes: maxHandoff})
	if err != nil {
		return nil, 0, err
	}
	p := &h.Proposal
	return h, revision, cmp.Or(in.rights.CheckTown(p.TownID), in.rights.CheckActor(p.ActorID))
}

// revisionOf returns the revision of results that a request asks for.
func (w *ServedWorld) revisionOf(header nats.Header) (handoff.Revision, error) {
	asked, given := header[wire.ResultRevisionHeader]
	switch {
	case !given:
		return w.service.config.Revision, nil
	case len(asked) == 1 && asked[0] == "0":
		return handoff.Revision0, nil
	case len(asked) == 1 && asked[0] == "1":
		return handoff.Revision1, nil
	}
	return 0, errUnknownRevision
}

func revisionHeader(revision handoff.Revision) nats.Header {
	return nats.Header{wire.ResultRevisionHeader: {fmt.Sprint(int(revision))}}
}

// resultOf returns the bytes of the result in the answer to a handoff.
func resultOf(
	h *handoff.Handoff, revision handoff.Revision, answer *engine.Answer,
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

// revision1Of returns revision 1 of the result in a receipt.
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

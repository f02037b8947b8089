package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

const (
	defaultApprovals = 100
	// submitWait is how long approval.decide waits for the result of a handoff that it has submitted.
	submitWait = 3 * time.Second
)

func (s *Service) approvalList(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.ApprovalList](schemas.ApprovalListRequest, orEmpty(in.data))
	if err != nil {
		return nil, err
	}
	if r.TownID != "" {
		if err := in.rights.Read(r.TownID); err != nil {
			return nil, err
		}
	}
	of := func(townID string) bool { return in.rights.Read(townID) == nil }
	limit := cmp.Or(r.Limit, defaultApprovals)
	var page approvals.Page
	if r.Closed {
		page, err = s.engine.Approvals().Closed(ctx, r.TownID, r.After, limit,
			runs.PageBytes, of)
	} else {
		page, err = s.engine.Approvals().List(ctx, r.TownID, r.After, limit, runs.PageBytes, of)
	}
	if err != nil {
		return nil, err
	}
	return reply(messages.Approvals{
		Approvals: append([]*messages.Approval{}, page.Rows...), Next: page.Next,
	})
}

// approvalDecide takes a decision, and records one that is refused, of a user with the right to
// decide, as other signals.
func (s *Service) approvalDecide(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.ApprovalDecide](schemas.ApprovalDecideRequest,
		orEmpty(in.data))
	refused := err
	if refused != nil && json.Unmarshal(in.data, &r) != nil {
		r = messages.ApprovalDecide{}
	}
	given := worldengine.Signal{
		Kind: lifecycle.SignalDeny, TownID: r.TownID, Reason: r.Reason,
		HandoffID: r.HandoffID, HandoffHash: r.HandoffHash,
		ActorID: cmp.Or(s.actorOf(in.rights), r.ActorID),
	}
	if r.Decision == messages.Approve {
		given.Kind = lifecycle.SignalApprove
	}
	if refused == nil {
		refused = cmp.Or(in.rights.Town(r.TownID), in.rights.Read(r.TownID))
	}
	if refused != nil {
		s.reject(ctx, given, refused)
		return nil, refused
	}
	entry, err := s.engine.Decide(ctx, given)
	if err != nil {
		return nil, err
	}
	d := entry.Decision
	outcome := messages.Decided{
		TownID: given.TownID, HandoffID: entry.HandoffID, Decision: r.Decision,
		SignalID: d.SignalID, ActorID: d.ActorID, Reason: d.Reason, At: runevents.Timestamp(d.At),
		RunID: entry.RunID,
	}
	if d.Approved && r.Submit {
		s.submitApproved(ctx, &entry, &outcome)
	}
	return reply(outcome)
}

// submitApproved executes the approved handoff, and puts the result, or the reason that there is
// none, into outcome.
func (s *Service) submitApproved(
	ctx context.Context, entry *approval.Asked, outcome *messages.Decided,
) {
	ctx, cancel := context.WithTimeout(ctx, submitWait)
	defer cancel()
	if entry.Handoff == nil {
		s.submitted(ctx, entry, outcome)
		return
	}
	answer, err := s.engine.Deliver(ctx, entry)
	outcome.RunID = cmp.Or(answer.RunID, runOf(err))
	switch {
	case err == nil:
		outcome.Result = answer.JSON
	case ctx.Err() != nil:
		outcome.NotSubmitted = notSubmitted(wire.CodeInProgress,
			"the handoff was submitted, and has no result yet: it may still be executed or "+
				"refused. Look at its run, and ask result.get, which has the result of an "+
				"executed one")
	default:
		outcome.NotSubmitted = notSubmittedFor(err)
	}
}

// submitted puts the result of a handoff that was accepted for execution before, or the reason that
// there is none, into outcome. While a game has the command, its key may have the result of a run
// that was tried again.
func (s *Service) submitted(ctx context.Context, entry *approval.Asked, outcome *messages.Decided) {
	at, err := s.engine.Town(ctx, outcome.TownID)
	if err == nil && at.PendingRunID != "" && at.PendingRunID == entry.RunID {
		outcome.NotSubmitted = notSubmittedFor(&apply.InProgressError{
			RunID: entry.RunID, TownID: outcome.TownID, AbsentSince: at.PluginAbsentSince,
		})
		return
	}
	receipt, err := s.engine.Receipt(ctx, outcome.TownID, entry.IdempotencyKey)
	switch {
	case err == nil:
		outcome.RunID, outcome.Result = receipt.RunID, receipt.Result
	case !errors.Is(err, worldengine.ErrUnknownResult):
		outcome.NotSubmitted = notSubmittedFor(err)
	default:
		outcome.NotSubmitted = notSubmitted(wire.CodeUnknownResult,
			fmt.Sprintf("the handoff was accepted for execution in run %s, and its key has no result: the run "+
				"was cancelled, or the log does not keep its result any more; look at the run", entry.RunID))
	}
}

func notSubmitted(code wire.Code, message string) *messages.NotSubmitted {
	return &messages.NotSubmitted{Code: code, Message: message}
}

// notSubmittedFor gives the reason as the error reply of a handoff would.
func notSubmittedFor(err error) *messages.NotSubmitted {
	spec := specOf(err)
	return notSubmitted(spec.Code, spec.Text)
}

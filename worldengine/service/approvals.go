package service

import (
	"cmp"
	"context"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/approvals"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/runs"
	"worldengine/worldengine/wire"
)

const (
	defaultApprovals = 100
	// submitWait is how long approval.decide waits for the result of what it has submitted.
	submitWait = 3 * time.Second
)

func (s *Service) approvalList(
	ctx context.Context, rights access.Rights, data []byte,
) ([]byte, error) {
	r, err := parseRequest[struct {
		TownID string `json:"townId"`
		After  string `json:"after"`
		Limit  int    `json:"limit"`
	}](schemas.ApprovalListRequest, orEmpty(data), maxRequest)
	if err != nil {
		return nil, err
	}
	if r.TownID != "" {
		if err := rights.Read(r.TownID); err != nil {
			return nil, err
		}
	}
	limit, room := cmp.Or(r.Limit, defaultApprovals), runs.PageBytes
	page := struct {
		Approvals []*approvals.Row `json:"approvals"`
		Next      string           `json:"next,omitzero"`
	}{Approvals: []*approvals.Row{}}
	of := func(townID string) bool {
		return (r.TownID == "" || townID == r.TownID) && rights.Read(townID) == nil
	}
	err = s.engine.Approvals().List(ctx, r.After, of, func(row *approvals.Row) bool {
		encoded, err := json.Marshal(row)
		room -= len(encoded) + 1
		if n := len(page.Approvals); n > 0 && (n == limit || room < 0 || err != nil) {
			page.Next = page.Approvals[n-1].Place()
			return false
		}
		page.Approvals = append(page.Approvals, row)
		return true
	})
	if err != nil {
		return nil, err
	}
	return reply(page)
}

// decideRequest is an approval-decide-request.v1.
type decideRequest struct {
	HandoffID string `json:"handoffId"`
	Decision  string `json:"decision"`
	Reason    string `json:"reason"`
	ActorID   string `json:"actorId"`
	Submit    bool   `json:"submit"`
}

// decided is an approval-decide-reply.v1.
type decided struct {
	TownID    string         `json:"townId"`
	HandoffID string         `json:"handoffId"`
	Decision  string         `json:"decision"`
	SignalID  string         `json:"signalId"`
	ActorID   string         `json:"actorId"`
	Reason    string         `json:"reason,omitzero"`
	At        string         `json:"at"`
	RunID     string         `json:"runId,omitzero"`
	Result    jsontext.Value `json:"result,omitzero"`
	// NotSubmitted is why there is no result although one was asked for. The decision stands.
	NotSubmitted *notSubmitted `json:"notSubmitted,omitzero"`
}

// notSubmitted is an error beside an answer.
type notSubmitted struct {
	Code    wire.Code `json:"code"`
	Message string    `json:"message"`
}

// approvalDecide takes a decision, and records one that is refused, of a user with the right to
// decide, as other signals.
func (s *Service) approvalDecide(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[decideRequest](schemas.ApprovalDecideRequest,
		orEmpty(in.data), maxRequest)
	refused := err
	if refused != nil && json.Unmarshal(in.data, &r) != nil {
		r = decideRequest{}
	}
	given := worldengine.Signal{
		Kind: lifecycle.SignalDeny, HandoffID: r.HandoffID, Reason: r.Reason,
		ActorID: cmp.Or(in.rights.Identity(s.config.Access).User, r.ActorID),
	}
	if r.Decision == "approve" {
		given.Kind = lifecycle.SignalApprove
	}
	if refused == nil {
		if given.TownID, err = s.engine.Approvals().Find(ctx, r.HandoffID); err != nil {
			return nil, err
		}
		if given.TownID != "" {
			refused = cmp.Or(in.rights.Town(given.TownID), in.rights.Read(given.TownID))
		}
	}
	if refused != nil {
		if err := s.engine.Reject(ctx, given, rowOf(refused).code); err != nil {
			s.config.Logger.Warn("a refused signal cannot be recorded", "signal",
				given.Kind, "error", err)
		}
		return nil, refused
	}
	entry, err := s.engine.Decide(ctx, given)
	if err != nil {
		return nil, err
	}
	d := entry.Decision
	told := decided{
		TownID: given.TownID, HandoffID: entry.HandoffID, Decision: r.Decision,
		SignalID: d.SignalID, ActorID: d.ActorID, Reason: d.Reason, At: runevents.Timestamp(d.At),
	}
	if d.Approved && r.Submit {
		s.submitApproved(ctx, &entry, &told)
	}
	body, err := reply(told)
	return &nats.Msg{Data: body}, err
}

// submitApproved executes what was approved, and tells the result, or why there is none.
func (s *Service) submitApproved(ctx context.Context, entry *approval.Asked, told *decided) {
	ctx, cancel := context.WithTimeout(ctx, submitWait)
	defer cancel()
	answer, err := s.engine.Deliver(ctx, entry)
	switch {
	case err == nil:
		told.RunID, told.Result = answer.RunID, answer.JSON
	case ctx.Err() != nil:
		told.NotSubmitted = &notSubmitted{wire.CodeInProgress,
			"the handoff was submitted, and has no result yet: it may still be executed or " +
				"refused. Look for its run, and ask result.get, which has the result of an " +
				"executed one"}
	default:
		row := rowOf(err)
		told.NotSubmitted = &notSubmitted{row.code, cmp.Or(row.text, err.Error())}
	}
}

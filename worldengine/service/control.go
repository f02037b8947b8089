package service

import (
	"context"
	"fmt"
	"time"

	"worldengine/schemas"
	"worldengine/worldengine"
)

// controlReply is the answer of the control verbs and of run.cancel.
type controlReply struct {
	TownID    string                `json:"townId,omitzero"`
	Status    string                `json:"status"`
	Substatus string                `json:"substatus,omitzero"`
	Applying  int                   `json:"applying"`
	Message   string                `json:"message,omitzero"`
	PausedBy  *worldengine.PausedBy `json:"pausedBy,omitzero"`
	SignalID  string                `json:"signalId,omitzero"`
}

func controlReplyOf(c worldengine.Control) ([]byte, error) {
	r := controlReply{
		TownID: c.TownID, Status: "RUNNING", Applying: c.Applying, PausedBy: c.By, SignalID: c.SignalID,
	}
	if c.Paused {
		r.Status, r.Message = "PAUSED", "Paused."
	}
	if c.Draining {
		r.Substatus = "DRAINING"
		r.Message = fmt.Sprintf("Paused. Commands still being applied: %d.", c.Applying)
	}
	return reply(r)
}

// signalRequest is what the requests of all signals are read into.
type signalRequest struct {
	TownID         string `json:"townId"`
	RunID          string `json:"runId"`
	ActorID        string `json:"actorId"`
	Reason         string `json:"reason"`
	DrainTimeoutMs int64  `json:"drainTimeoutMs"`
}

// signal returns the verb that gives a signal, whose request has the given schema.
func (s *Service) signal(
	kind worldengine.SignalKind, schema schemas.Name,
) func(context.Context, []byte) ([]byte, error) {
	return func(ctx context.Context, data []byte) ([]byte, error) {
		r, err := request[signalRequest](schema, orEmpty(data), maxRequest)
		if err != nil {
			return nil, err
		}
		c, err := s.engine.Signal(ctx, worldengine.Signal{
			Kind: kind, TownID: r.TownID, RunID: r.RunID, ActorID: r.ActorID, Reason: r.Reason,
			DrainTimeout: time.Duration(r.DrainTimeoutMs) * time.Millisecond,
		})
		if err != nil {
			return nil, err
		}
		return controlReplyOf(c)
	}
}

func (s *Service) controlGet(ctx context.Context, data []byte) ([]byte, error) {
	r, err := request[signalRequest](schemas.ControlGetRequest, orEmpty(data), maxRequest)
	if err != nil {
		return nil, err
	}
	c, err := s.engine.Control(ctx, r.TownID)
	if err != nil {
		return nil, err
	}
	return controlReplyOf(c)
}

// orEmpty makes an empty object of what `nats request` sends when it is given no body.
func orEmpty(data []byte) []byte {
	if len(data) == 0 {
		return []byte("{}")
	}
	return data
}

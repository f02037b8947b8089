package service

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func controlReplyOf(c worldengine.Control) (*nats.Msg, error) { return reply(controlOf(c)) }

func controlOf(c worldengine.Control) messages.Control {
	r := messages.Control{
		TownID: c.TownID, Status: messages.Running, Applying: c.Applying, PausedBy: c.By,
		SignalID: c.SignalID,
	}
	if c.Paused {
		r.Status, r.Message = messages.Paused, "Paused."
	}
	if c.Draining {
		r.Substatus = messages.Draining
		r.Message = fmt.Sprintf("Paused. Commands still being applied: %d.", c.Applying)
	}
	return r
}

// signal returns the handler of a verb that gives a signal, whose request has the given schema. One
// that is refused is recorded too, as far as it says what it is about; another one is carried out.
func (s *Service) signal(
	verb wire.Verb, kind lifecycle.SignalKind, schema schemas.Name,
	carryOut func(context.Context, worldengine.Signal) (*nats.Msg, error),
) *endpoint {
	return s.reads(verb, func(ctx context.Context, in *incoming) (*nats.Msg, error) {
		r, err := parseRequest[messages.Signal](schema, orEmpty(in.data))
		refused := cmp.Or(in.refused, err)
		if refused != nil && json.Unmarshal(in.data, &r) != nil {
			r = named(in.data)
		}
		given := worldengine.Signal{
			Kind: kind, TownID: r.TownID, RunID: r.RunID, Reason: r.Reason, Force: r.Force,
			ActorID:      cmp.Or(s.actorOf(in.rights), r.ActorID),
			DrainTimeout: time.Duration(r.DrainTimeoutMs) * time.Millisecond,
		}
		if refused != nil {
			s.reject(ctx, given, refused)
			return nil, refused
		}
		return carryOut(ctx, given)
	})
}

// reject records a signal that is refused.
func (s *Service) reject(ctx context.Context, given worldengine.Signal, refused error) {
	if err := s.engine.Reject(ctx, given, specOf(refused).Code); err != nil {
		s.config.Logger.Warn("a refused signal cannot be recorded", "signal", given.Kind,
			"error", err)
	}
}

// named returns what a request that is not valid says of the run and the town that it is about.
func named(data []byte) (r messages.Signal) {
	var about struct {
		RunID  any `json:"runId"`
		TownID any `json:"townId"`
	}
	_ = json.Unmarshal(data, &about) // what can be read of it
	r.RunID, _ = about.RunID.(string)
	r.TownID, _ = about.TownID.(string)
	return r
}

// control pauses, resumes or cancels.
func (s *Service) control(ctx context.Context, given worldengine.Signal) (*nats.Msg, error) {
	c, err := s.engine.Signal(ctx, given)
	if err != nil {
		return nil, err
	}
	return controlReplyOf(c)
}

func (s *Service) controlGet(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.Signal](schemas.ControlGetRequest, orEmpty(in.data))
	if err != nil {
		return nil, err
	}
	may := in.rights.Read(r.TownID)
	if r.TownID == "" {
		may = in.rights.ReadWorld()
	}
	if may != nil {
		return nil, may
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

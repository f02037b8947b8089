package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
)

// defaultAlerts is a page of the alerts.
const defaultAlerts = 50

// alertList answers with alerts of all towns, so only those may ask who may read every town.
func (s *Service) alertList(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.AlertList](schemas.AlertListRequest, orEmpty(in.data))
	if err != nil {
		return nil, err
	}
	if err := in.rights.ReadWorld(); err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultAlerts
	}
	page, err := s.engine.Alerts().List(ctx, alerts.Filter{After: r.After, Open: r.Open}, r.Limit)
	if err != nil {
		return nil, err
	}
	return reply(messages.Alerts{Alerts: page.Alerts, Next: page.Next})
}

// alertAck acknowledges an alert, in the name of the user.
func (s *Service) alertAck(ctx context.Context, in *incoming) (*nats.Msg, error) {
	r, err := parseRequest[messages.AlertAck](schemas.AlertAckRequest, in.data)
	if err != nil {
		return nil, err
	}
	if err := in.rights.ReadWorld(); err != nil {
		return nil, err
	}
	by := cmp.Or(s.actorOf(in.rights), r.ActorID, "operator")
	acknowledged, err := s.engine.Alerts().Acknowledge(ctx, r.Seq, by, r.Reason)
	if full := s.engine.MayStore(); full != nil && errors.Is(err, alerts.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", commitlog.ErrStorageFull, full)
	}
	if err != nil {
		return nil, err
	}
	return reply(acknowledged)
}

func (s *Service) whoAmI(_ context.Context, in *incoming) (*nats.Msg, error) {
	if _, err := parseRequest[struct{}](schemas.WhoAmIRequest, orEmpty(in.data)); err != nil {
		return nil, err
	}
	id := in.rights.Identity(s.config.Access)
	return reply(messages.Identity{
		World: s.config.World, User: id.User, Role: string(id.Role), Towns: id.Towns,
		Actors: id.Actors, Read: id.Read, Verbs: id.Verbs,
	})
}

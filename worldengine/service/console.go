package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// defaultAlerts is a page of the alerts.
const defaultAlerts = 50

// alertList answers with alerts of all towns, so only those may ask who may read every town.
func (s *Service) alertList(
	ctx context.Context, rights access.Rights, data []byte,
) ([]byte, error) {
	r, err := parseRequest[struct {
		After uint64 `json:"after"`
		Limit int    `json:"limit"`
		Open  bool   `json:"unacknowledged"`
	}](schemas.AlertListRequest, orEmpty(data), maxRequest)
	if err != nil {
		return nil, err
	}
	if err := rights.ReadWorld(); err != nil {
		return nil, err
	}
	if r.Limit == 0 {
		r.Limit = defaultAlerts
	}
	page, err := s.engine.Alerts().List(ctx, alerts.Filter{After: r.After, Open: r.Open}, r.Limit)
	if err != nil {
		return nil, err
	}
	return reply(struct {
		Alerts []alerts.Stored `json:"alerts"`
		Next   uint64          `json:"next,omitzero"`
	}{page.Alerts, page.Next})
}

// alertAck acknowledges an alert: in the name of the user, where NATS names one.
func (s *Service) alertAck(ctx context.Context, rights access.Rights, data []byte) ([]byte, error) {
	r, err := parseRequest[struct {
		Seq     uint64 `json:"seq"`
		ActorID string `json:"actorId"`
		Reason  string `json:"reason"`
	}](schemas.AlertAckRequest, data, maxRequest)
	if err != nil {
		return nil, err
	}
	if err := rights.ReadWorld(); err != nil {
		return nil, err
	}
	by := cmp.Or(rights.Identity(s.config.Access).User, r.ActorID, "operator")
	acknowledged, err := s.engine.Alerts().Acknowledge(ctx, r.Seq, by, r.Reason)
	if full := s.engine.MayStore(); full != nil && errors.Is(err, alerts.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", commitlog.ErrStorageFull, full)
	}
	if err != nil {
		return nil, err
	}
	return reply(acknowledged)
}

func (s *Service) whoAmI(_ context.Context, rights access.Rights, data []byte) ([]byte, error) {
	if _, err := parseRequest[struct{}](schemas.WhoAmIRequest, orEmpty(data),
		maxRequest); err != nil {
		return nil, err
	}
	id := rights.Identity(s.config.Access)
	return reply(struct {
		World  string      `json:"world"`
		User   string      `json:"user,omitzero"`
		Role   access.Role `json:"role,omitzero"`
		Towns  []string    `json:"towns,omitempty"`
		Actors []string    `json:"actors,omitempty"`
		Read   []string    `json:"read,omitempty"`
		Verbs  []wire.Verb `json:"verbs"`
		// Changes says that this server publishes notices of changes: earlier versions do not.
		Changes bool `json:"changes"`
	}{s.config.World, id.User, id.Role, id.Towns, id.Actors, id.Read, id.Verbs, true})
}

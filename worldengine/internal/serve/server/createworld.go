package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/serve/service"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Create implements service.Worlds. If this server would not serve the world, it asks one that would.
func (m *manager) Create(
	ctx context.Context, request messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if s := m.server; s.mayHost(request.World) && !s.draining.Load() {
		return m.create(ctx, request)
	}
	if _, err := settingsOf(request.Settings); err != nil {
		return made, err
	}
	if err := m.requireNew(ctx, request.World); err != nil {
		return made, err
	}
	return m.askToCreate(ctx, request)
}

// create makes a world that this server then serves.
func (m *manager) create(
	ctx context.Context, request messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	s, world := m.server, request.World
	settings, err := settingsOf(request.Settings)
	if err == nil {
		err = m.requireNew(ctx, world)
	}
	if err != nil {
		return made, err
	}
	h, err := s.host(world, settings, true)
	if err == nil && h == nil {
		err = errExists(world)
	}
	if err == nil {
		err = s.setWorlds(s.Worlds)
	}
	if err != nil {
		return made, err
	}
	select {
	case <-h.decided:
	case <-ctx.Done():
	}
	t := h.serving.Load()
	if t == nil {
		err = h.ready()
		s.drop(h)
		return made, fmt.Errorf("%w: the new %w", service.ErrWorldNotServed, err)
	}
	made = messages.WorldCreated{World: world, Settings: map[string]string{}}
	for _, setting := range t.engine.Settings().List() {
		made.Settings[setting.Name] = setting.Value
	}
	return made, nil
}

// requireNew returns an error if there is a world of a name, or it is being removed.
func (m *manager) requireNew(ctx context.Context, world string) error {
	exists, err := m.exists(ctx, world)
	switch {
	case err != nil:
		return err
	case m.isRemoving(world):
		return errRemoving(world)
	case exists || m.server.worlds.get(world) != nil:
		return errExists(world)
	}
	return nil
}

// askToCreate has another server make a world that it would serve.
func (m *manager) askToCreate(
	ctx context.Context, request messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	asked, err := json.Marshal(request)
	if err != nil {
		return made, err
	}
	answer, err := m.server.conn.RequestWithContext(ctx, layout.CreateSubject(request.World), asked)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		// The user may not know of the worlds that servers do serve.
		return made, fmt.Errorf("%w: each server serves the worlds alone with which it was started: start "+
			"handoffd with --worlds all, or with --world %s too", service.ErrWorldNotServed, request.World)
	case err != nil:
		return made, fmt.Errorf("%w: the server that is to make it did not answer: %w",
			service.ErrWorldNotServed, err)
	}
	if err := failureIn(answer, "the server that is to serve the world could not make it"); err != nil {
		return made, err
	}
	return made, json.Unmarshal(answer.Data, &made)
}

// hearCreations has this server make the worlds that others are asked to create, and that it would
// serve. One of several such servers does so.
func (m *manager) hearCreations() error {
	worlds := m.server.config.Worlds.Names
	if m.server.config.Worlds.All {
		worlds = []string{layout.AnyWorld}
	}
	for _, world := range worlds {
		sub, err := m.server.conn.QueueSubscribe(layout.CreateSubject(world), creators, func(msg *nats.Msg) {
			go m.answerCreation(msg)
		})
		if err != nil {
			return err
		}
		m.creations = append(m.creations, sub)
	}
	return nil
}

// creators is the queue group of the servers that are asked to make a world.
const creators = "creators"

func (m *manager) answerCreation(msg *nats.Msg) {
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	var request messages.WorldsCreate
	var made messages.WorldCreated
	answer := &nats.Msg{Subject: msg.Reply, Header: nats.Header{}}
	err := json.Unmarshal(msg.Data, &request)
	if err == nil {
		made, err = m.create(ctx, request)
	}
	if err == nil {
		answer.Data, err = json.Marshal(made)
	}
	addFailure(answer, err)
	_ = m.server.conn.PublishMsg(answer)
}

// stopCreations leaves worlds that are to be made to other servers.
func (m *manager) stopCreations() {
	for _, sub := range m.creations {
		_ = sub.Unsubscribe() // fails only when the connection is gone
	}
}

// failureHeaders are the headers in which one server tells another why a request about worlds failed. The
// last one is for all other errors.
var failureHeaders = []struct {
	header string
	err    error
}{
	{"World-In-Use", service.ErrWorldInUse}, {"World-Exists", service.ErrWorldExists},
	{"World-Not-Served", service.ErrWorldNotServed}, {"Unknown-World", service.ErrUnknownWorld},
}

const failedHeader = "Failed"

// addFailure adds an error, unless it is nil, to the answer to another server.
func addFailure(answer *nats.Msg, err error) {
	for _, f := range failureHeaders {
		if errors.Is(err, f.err) {
			answer.Header.Set(f.header, strings.TrimPrefix(err.Error(), f.err.Error()+": "))
			return
		}
	}
	if err != nil {
		answer.Header.Set(failedHeader, err.Error())
	}
}

// failureIn returns the error in the answer of another server; failed says what that server could not do.
func failureIn(answer *nats.Msg, failed string) error {
	for _, f := range failureHeaders {
		if why := answer.Header.Get(f.header); why != "" {
			return fmt.Errorf("%w: %s", f.err, why)
		}
	}
	if why := answer.Header.Get(failedHeader); why != "" {
		return fmt.Errorf("server: %s: %s", failed, why)
	}
	return nil
}

func errExists(world string) error {
	return fmt.Errorf("%w: %s; use it, or choose another name", service.ErrWorldExists, world)
}

// settingsOf returns settings by their names.
func settingsOf(values map[string]string) (settings worldsettings.Settings, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		err := settings.Set(name, values[name])
		if err == nil {
			err = settings.Validate()
		}
		if err != nil {
			return settings, schemas.Invalid(schemas.RequestOf(string(wire.WorldsCreate)), schemas.Violation{
				Path: schemas.Pointer("settings", name), Message: phrase.Sentence(err),
			})
		}
	}
	return settings, nil
}

package hosting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

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

// Create implements service.WorldManager. If this server would not serve the world, it asks one that would.
func (ws *Worlds) Create(
	ctx context.Context, request messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if ws.config.mayHost(request.World) && ws.ctx.Err() == nil {
		return ws.createHere(ctx, request)
	}
	if _, err := ws.checkCreation(ctx, request); err != nil {
		return made, err
	}
	return ws.askToCreate(ctx, request)
}

// createHere makes a world that this server then serves. It asks no other server: requests of others call it.
func (ws *Worlds) createHere(
	ctx context.Context, request messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	for {
		settings, err := ws.checkCreation(ctx, request)
		if err != nil {
			return made, err
		}
		made, err = ws.create(ctx, request.World, settings)
		// Since the check, a look may have hosted a world that was removed after it was listed.
		if !errors.Is(err, service.ErrWorldExists) {
			return made, err
		}
	}
}

// checkCreation returns the settings of a world to make, or an error if no server can make it.
func (ws *Worlds) checkCreation(
	ctx context.Context, request messages.WorldsCreate,
) (settings worldsettings.Settings, err error) {
	settings, err = settingsOf(request.Settings)
	if err == nil {
		err = ws.requireNew(ctx, request.World)
	}
	return settings, err
}

// requireNew returns an error if there is a world of a name, or it is being removed. It drops a world that
// another server has removed, if this server has not heard of that yet.
func (ws *Worlds) requireNew(ctx context.Context, world string) error {
	exists, err := ws.exists(ctx, world)
	known := ws.get(world)
	switch {
	case err != nil:
		return err
	case ws.isRemoving(world):
		return errNotNow(world, errRemoving)
	case exists || known != nil && !known.removedIfLogMissing():
		return errExists(world)
	case known != nil:
		ws.drop(known)
	}
	return nil
}

// create is createHere without the check.
func (ws *Worlds) create(
	ctx context.Context, world string, settings worldsettings.Settings,
) (made messages.WorldCreated, err error) {
	w, err := ws.host(world, settings, true)
	if err == nil {
		err = ws.shared.Grant(ws.Names)
	}
	if err != nil {
		return made, err
	}
	select {
	case <-w.firstStart:
	case <-w.ctx.Done():
	case <-ctx.Done():
	}
	t := w.tenure()
	if t == nil {
		err = w.ready()
		ws.drop(w)
		return made, fmt.Errorf("%w: the new %w", service.ErrWorldNotServed, err)
	}
	made = messages.WorldCreated{World: world, Settings: map[string]string{}}
	for _, setting := range t.engine.Settings().List() {
		made.Settings[setting.Name] = setting.Value
	}
	return made, nil
}

// askToCreate has another server make a world that it would serve.
func (ws *Worlds) askToCreate(
	ctx context.Context, request messages.WorldsCreate,
) (made messages.WorldCreated, err error) {
	asked, err := json.Marshal(request)
	if err != nil {
		return made, err
	}
	answer, err := ws.askPeer(ctx, &nats.Msg{Subject: layout.CreateSubject(request.World), Data: asked},
		"the server that is to make it did not answer", "the server that is to serve the world could not make it")
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		// The user may not know of the worlds that servers do serve.
		return made, fmt.Errorf("%w: each server serves the worlds alone with which it was started: start "+
			"handoffd with --worlds all, or with --world %s too", service.ErrWorldNotServed, request.World)
	case err != nil:
		return made, err
	}
	return made, json.Unmarshal(answer, &made)
}

// creators is the queue group of the servers that are asked to make a world.
const creators = "creators"

// subscribeCreations has this server make the worlds that others are asked to create, and that it would
// serve. One of several such servers does so.
func (ws *Worlds) subscribeCreations() error {
	worlds := ws.config.Names
	if ws.config.All {
		worlds = []string{layout.AnyWorld}
	}
	for _, world := range worlds {
		sub, err := ws.shared.Conn.QueueSubscribe(layout.CreateSubject(world), creators, func(msg *nats.Msg) {
			ws.answer(msg, func(ctx context.Context) (data []byte, err error) {
				var request messages.WorldsCreate
				if err := json.Unmarshal(msg.Data, &request); err != nil {
					return nil, err
				}
				made, err := ws.createHere(ctx, request)
				if err != nil {
					return nil, err
				}
				return json.Marshal(made)
			})
		})
		if err != nil {
			return err
		}
		ws.creations = append(ws.creations, sub)
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

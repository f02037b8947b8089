package hosting

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
)

// changeTimeout bounds the creation or removal of a world.
const changeTimeout = time.Minute

// openVerbs begins to answer the verbs about worlds, and to hear of worlds that are removed.
func (ws *Worlds) openVerbs() error {
	_, err := ws.shared.Conn.Subscribe(layout.RemovedSubject("*"), func(msg *nats.Msg) {
		w := ws.get(string(msg.Data))
		if w != nil && w.tenure() == nil { // else it would make the world anew
			go ws.drop(w)
		}
	})
	if err == nil {
		err = ws.subscribeCreations()
	}
	if err == nil {
		err = ws.shared.Service.OpenWorlds(ws)
	}
	if err != nil {
		return fmt.Errorf("hosting: verbs about worlds: %w", err)
	}
	return nil
}

// exists reports whether NATS has a world, or a restore of it that is unfinished.
func (ws *Worlds) exists(ctx context.Context, world string) (bool, error) {
	for _, name := range []string{layout.LogStream(world), layout.RestoringStream(world)} {
		_, err := ws.shared.JetStream.Stream(ctx, name)
		if err == nil || !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}

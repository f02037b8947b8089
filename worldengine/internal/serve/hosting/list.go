package hosting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

const (
	// writerTimeout bounds how long a list waits for the writer of a world.
	writerTimeout = 2 * time.Second
	// maxQuestions is how many writers are asked side by side.
	maxQuestions = 16
)

// List implements service.WorldManager. It asks the writer of each world of the page.
func (ws *Worlds) List(
	ctx context.Context, page messages.WorldsList, may func(string) bool, figures bool,
) (list messages.Worlds, err error) {
	names, err := ws.knownWorlds(ctx)
	if err != nil {
		return list, err
	}
	names = slices.DeleteFunc(names, func(world string) bool {
		return !may(world) || page.World != "" && page.World != world
	})
	list.Total = len(names)
	first := 0
	if page.After != "" {
		first, _ = slices.BinarySearch(names, page.After+"\x00")
	}
	names = names[first:]
	if len(names) > page.Limit {
		names = names[:page.Limit]
		list.Next = names[page.Limit-1]
	}
	list.Worlds = make([]messages.ListedWorld, len(names))
	each(names, maxQuestions, func(i int, world string) { list.Worlds[i] = ws.describe(ctx, world, figures) })
	return list, nil
}

// knownWorlds returns the worlds of the NATS, and those that this server is to make, in their order.
func (ws *Worlds) knownWorlds(ctx context.Context) ([]string, error) {
	found, err := ws.storedWorlds(ctx)
	if err != nil {
		return nil, err
	}
	names := append(found, ws.Names()...)
	slices.Sort(names)
	return slices.Compact(names), nil
}

// describe returns a world as its writer reports it.
func (ws *Worlds) describe(ctx context.Context, world string, figures bool) messages.ListedWorld {
	listed := messages.ListedWorld{World: world, State: messages.WorldServed}
	ctx, cancel := context.WithTimeout(ctx, writerTimeout)
	defer cancel()
	var status messages.WorldReport
	var samples messages.Samples
	var asking errgroup.Group
	asking.Go(func() error { return ws.ask(ctx, world, wire.WorldStatus, "{}", &status) })
	asking.Go(func() error { // the last sample is not over yet
		return ws.ask(ctx, world, wire.WorldSamples, `{"minutes": 2, "points": 2}`, &samples)
	})
	if err := asking.Wait(); err != nil {
		listed.State, listed.Why = ws.whyUnserved(world, err)
		return listed
	}
	for _, server := range status.Servers {
		if server.Writer {
			listed.Writer = &messages.WorldServer{ID: server.ID, Name: server.Name, Version: server.Version}
		}
	}
	listed.Paused = status.PausedBy != nil
	if figures {
		handoffs := int64(0)
		for _, sample := range samples.Samples[:min(1, len(samples.Samples))] {
			for _, n := range sample.Results {
				handoffs += n
			}
		}
		listed.Towns, listed.Waiting, listed.HandoffsPerMinute = &status.Towns, &status.Waiting, &handoffs
		open := 0
		for _, n := range status.Alerts.Count {
			open += n
		}
		listed.Alerts = &open
	}
	return listed
}

// ask asks the writer of a world.
func (ws *Worlds) ask(
	ctx context.Context, world string, verb wire.Verb, request string, reply any,
) error {
	msg, err := ws.shared.Conn.RequestWithContext(ctx, wire.Subject(world, verb), []byte(request))
	if err != nil {
		return err
	}
	if text := msg.Header.Get(wire.ErrorHeader); text != "" {
		return errors.New(text)
	}
	return json.Unmarshal(msg.Data, reply)
}

// whyUnserved returns the state of a world whose writer did not answer, and why no server that is there
// serves it.
func (ws *Worlds) whyUnserved(world string, unanswered error) (state, why string) {
	state = messages.WorldUnserved
	w, others := ws.get(world), ws.placer.Refusals(world)
	switch {
	case ws.isRemoving(world), ws.placer.IsRemoving(world):
		return state, phrase.Sentence(errRemoving)
	case w == nil && len(others) > 0:
		return state, strings.Join(others, "; ")
	case w == nil:
		return state, "no server serves it: start handoffd with --world " + world + ", or with --worlds all"
	}
	switch err := w.ready(); {
	case errors.Is(err, errStandby):
		state = messages.WorldStandby
		why = "its writer does not answer; a server that stands by takes over; " + ws.placer.Reason(world)
	case err != nil:
		why = phrase.Sentence(err)
	case errors.Is(unanswered, context.DeadlineExceeded), errors.Is(unanswered, nats.ErrTimeout),
		errors.Is(unanswered, nats.ErrNoResponders):
		why = fmt.Sprintf("its writer did not answer within %s", writerTimeout)
	default:
		why = strings.TrimSpace(unanswered.Error())
	}
	return state, strings.Join(append([]string{why}, others...), "; ")
}

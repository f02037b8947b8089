package handoffctl

import (
	"context"
	"strings"

	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// glance is a world in the list of status --worlds.
type glance struct {
	messages.ListedWorld
	// Healthy and Problems are as the status of the world has them. A world that is not served, or does not tell its
	// status, is not healthy.
	Healthy  bool     `json:"healthy"`
	Problems []string `json:"problems"`
}

// askedBeside is how many worlds are asked side by side.
const askedBeside = 16

// showWorlds shows the state of all worlds.
func (a *app) showWorlds(ctx context.Context, server *client.Client) error {
	listed, err := first(server.Worlds(ctx), 0)
	if err != nil {
		return err
	}
	all := make([]glance, len(listed))
	var asking errgroup.Group
	asking.SetLimit(askedBeside)
	for i := range listed {
		asking.Go(func() error {
			all[i] = glanceOf(ctx, worldClient(server, listed[i].World), &listed[i])
			return nil
		})
	}
	_ = asking.Wait() // none returns an error
	var needy []string
	for i := range all {
		if !all[i].Healthy {
			needy = append(needy, all[i].World)
		}
	}
	return a.conclude(map[string]any{"worlds": all}, func(t table) { a.writeGlances(t, all) },
		failedIf(len(needy) > 0, "%s of %d need attention: %s", phrase.Counted(len(needy), "world"), len(all),
			strings.Join(needy, ", ")))
}

// glanceOf asks a world for its status.
func glanceOf(ctx context.Context, world *client.Client, listed *messages.ListedWorld) glance {
	g := glance{ListedWorld: *listed, Problems: []string{}}
	if listed.State != messages.WorldServed {
		g.Problems = append(g.Problems, "not served: "+listed.Why)
		return g
	}
	var status messages.WorldReport
	_, err := world.Ask(ctx, wire.WorldStatus, messages.WorldStatus{}, &status)
	if err != nil {
		g.Problems = append(g.Problems, sentence(err))
		return g
	}
	g.Healthy, g.Problems = status.Healthy, append(g.Problems, status.Problems...)
	return g
}

func (a *app) writeGlances(t table, all []glance) {
	list(t, "WORLD\tHEALTH\tTOWNS\tA MINUTE\tWAITING\tALERTS\tWRITER", all, func(g *glance) []any {
		cells := a.worldRow(&g.ListedWorld)
		health := a.coloured("good", good)
		switch {
		case !g.Healthy:
			health = a.coloured("needs attention", bad)
		case g.Paused:
			health = a.coloured("good, paused", warn)
		}
		cells[1] = cell(health)
		return cells
	})
	t.Flush()
	for i := range all {
		for _, problem := range all[i].Problems {
			t.linef("%s: %s", all[i].World, show(problem))
		}
	}
}

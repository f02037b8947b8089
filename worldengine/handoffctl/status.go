package handoffctl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// statusCommand shows the state of the world, or the pause of a town.
type statusCommand struct {
	Target townFlag `embed:"" set:"without=the whole world by default"`
	Worlds bool     `help:"Show all worlds of the server at a glance."`
}

func (c *statusCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	town := c.Target.town()
	switch {
	case c.Worlds && town != "":
		return usagef("give a town or --worlds, not both")
	case c.Worlds:
		return a.showWorlds(ctx, server)
	case town == "":
		return a.showWorld(ctx, server)
	}
	request := messages.Signal{TownID: town}
	return askFor(ctx, a, wire.ControlGet, request, "status of a town", func(r *messages.Control) any {
		of, _ := server.Town(ctx, town) // not every user may read it
		return map[string]any{"Control": r, "Town": of}
	})
}

// showWorld shows the status of the world.
func (a *app) showWorld(ctx context.Context, server *client.Client) error {
	var s messages.WorldReport
	raw, err := server.Ask(ctx, wire.WorldStatus, messages.WorldStatus{Damage: true}, &s)
	if err != nil {
		return err
	}
	return cmp.Or(a.print(raw, "status", &s), failedIf(!s.Healthy,
		"the world %s needs attention: %s", s.World, phrase.Counted(len(s.Problems), "problem")))
}

// absences are the towns that wait for their plugins, and since when the first of them waits.
func absences(all []messages.AbsentPlugin) (found struct {
	Since string
	Towns []string
}) {
	found.Since = all[0].Since
	for i := range all {
		found.Since = min(found.Since, all[i].Since)
		found.Towns = append(found.Towns, all[i].TownID)
	}
	return found
}

// unnamedAlerts are the newest alerts, without those whose texts are among the problems already.
func unnamedAlerts(s *messages.WorldReport) []messages.OpenAlert {
	problems := "\n" + strings.Join(s.Problems, "\n")
	return slices.DeleteFunc(slices.Clone(s.Alerts.Newest), func(alert messages.OpenAlert) bool {
		return strings.Contains(problems, fmt.Sprintf("\nalert %d, ", alert.Seq))
	})
}

type statsCommand struct{}

func (c *statsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	s, err := server.WorldStatus(ctx)
	if err != nil {
		return err
	}
	if s.Unknown["servers"] != "" {
		return unavailablef(permissionDenied, nil, "this user may not ask for statistics: the role "+
			"operator may, and observer without read")
	}
	return a.print(map[string]any{"servers": s.Servers}, "stats", s.Servers)
}

func sortedVerbs(verbs []messages.VerbCount) []messages.VerbCount {
	return slices.SortedFunc(slices.Values(verbs), func(a, b messages.VerbCount) int { return cmp.Compare(a.Verb, b.Verb) })
}

type whoAmICommand struct{}

func (whoAmICommand) Run(ctx context.Context, a *app) error {
	return ask[messages.Identity](ctx, a, wire.WhoAmI, struct{}{}, "whoami")
}

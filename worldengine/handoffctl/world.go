package handoffctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/worldfile"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// worldCommands are about the worlds of a NATS.
type worldCommands struct {
	List     worldListCommand   `cmd:"" help:"List the worlds, with the server that serves each."`
	Create   worldCreateCommand `cmd:"" help:"Create a world, and put the towns of a file into it."`
	Remove   worldRemoveCommand `cmd:"" help:"Remove a world with all its data."`
	Settings struct {
		Get settingsGetCommand `cmd:"" help:"Show the settings of the world."`
		Set settingsSetCommand `cmd:"" help:"Change settings of the world."`
	} `cmd:"" help:"Show and change the settings of the world."`
}

type worldListCommand struct {
	Limit limitFlag `embed:""`
}

func (c *worldListCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	all, err := first(server.Worlds(ctx), c.Limit.Limit)
	if err != nil {
		return err
	}
	return a.print(map[string]any{"worlds": all}, "worlds", all)
}

type worldCreateCommand struct {
	World     string    `arg:"" help:"Name of the new world: 1 to 64 of A-Z a-z 0-9 _ -."`
	WorldFile string    `help:"File with the towns of the world: a JSON array of snapshot.v1, as handoffd --world-file takes it." placeholder:"FILE"`
	Apply     string    `help:"Who applies the commands of its towns: local, plugin or rcon; the server's default for new worlds if left out." placeholder:"BINDING"`
	Set       []setting `help:"Another setting of the world, such as history-per-town=20000; may be repeated." placeholder:"NAME=VALUE" sep:"none"`
}

func (c *worldCreateCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	if err := wire.ValidateWorld(c.World); err != nil {
		return usage(err)
	}
	towns, err := c.towns(a)
	if err != nil {
		return err
	}
	settings := map[string]string{}
	if c.Apply != "" {
		settings["apply"] = c.Apply
	}
	for _, s := range c.Set {
		settings[s.name] = s.value
	}
	if settings, err = server.CreateWorld(ctx, c.World, settings); err != nil {
		return err
	}
	if err := c.put(ctx, a, worldClient(server, c.World), towns); err != nil {
		return err
	}
	report := map[string]any{"world": c.World, "settings": settings, "towns": len(towns)}
	return a.print(report, "created world", report)
}

// worldClient returns a client of another world of the same server.
func worldClient(server *client.Client, world string) *client.Client {
	return &client.Client{Conn: server.Conn, World: world, Timeout: server.Timeout}
}

// setting is NAME=VALUE on the command line.
type setting struct{ name, value string }

// UnmarshalText reads a setting.
func (s *setting) UnmarshalText(text []byte) (err error) {
	var found bool
	if s.name, s.value, found = strings.Cut(string(text), "="); !found {
		err = fmt.Errorf("must be NAME=VALUE, not %q", text)
	}
	return err
}

// towns returns the towns of the file, which is validated.
func (c *worldCreateCommand) towns(a *app) ([]worldfile.Town, error) {
	if c.WorldFile == "" {
		return nil, nil
	}
	data, err := a.readUpTo(c.WorldFile, worldfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	towns, err := worldfile.Parse(data, func(apply.Binding) error { return nil })
	if err != nil {
		return nil, invalid(c.WorldFile, err)
	}
	return towns, nil
}

// servedTimeout bounds how long a town waits until the new world is served.
const servedTimeout = 30 * time.Second

// put puts towns into the new world.
func (c *worldCreateCommand) put(
	ctx context.Context, a *app, into *client.Client, towns []worldfile.Town,
) error {
	line := a.progressLine()
	defer line.clear()
	for i := range towns {
		line.show(false, "%d of %s", i, phrase.Counted(len(towns), "town"))
		if err := putSoon(ctx, into, &towns[i]); err != nil {
			return fmt.Errorf("the world %s is created, and has the first %d of %d towns; put the others with "+
				"town put: %w", c.World, i, len(towns), err)
		}
	}
	return nil
}

// putSoon puts a town, and waits for the server that will serve the world. A town that is there is one
// whose answer was lost.
func putSoon(ctx context.Context, into *client.Client, town *worldfile.Town) error {
	ctx, cancel := context.WithTimeout(ctx, max(servedTimeout, into.Timeout))
	defer cancel()
	put := client.Put{Apply: string(town.Binding)}
	if town.Approval != nil {
		put.Approval = town.Approval.Types
	}
	err := into.Patiently(ctx, func() error {
		_, err := into.PutTown(ctx, town.State.Snapshot, put)
		return err
	})
	if client.IsCode(err, wire.CodeTownExists) {
		return nil
	}
	return err
}

type worldRemoveCommand struct {
	World string `arg:"" help:"Name of the world."`
	Yes   bool   `help:"Confirm the removal." required:""`
	Force bool   `help:"Remove the world even if requests to it are in hand, or plugins of it are connected."`
}

func (c *worldRemoveCommand) Run(ctx context.Context, a *app) error {
	request := messages.WorldsRemove{World: c.World, Force: c.Force}
	return ask[messages.WorldRemoved](ctx, a, wire.WorldsRemove, request, "removed world")
}

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
	return cmp.Or(a.print(map[string]any{"worlds": all}, "glances", all),
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

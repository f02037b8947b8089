package handoffctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/worldfile"
	"worldengine/worldengine/internal/kit/jsonfiles"
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
	return a.print(map[string]any{"worlds": all}, func(t table) {
		list(t, "WORLD\tSTATE\tTOWNS\tA MINUTE\tWAITING\tALERTS\tWRITER", all, a.worldRow)
		t.whyUnserved(all)
	})
}

// worldRow returns the cells of a world in a list.
func (a *app) worldRow(w *messages.ListedWorld) []any {
	writer := ""
	if w.Writer != nil {
		writer = show(cmp.Or(w.Writer.Name, w.Writer.ID)) + " " + show(w.Writer.Version)
	}
	state := show(w.State)
	if w.Paused {
		state += ", paused"
	}
	return []any{w.World, cell(a.coloured(state, toneOf(w))), figure(w.Towns), figure(w.HandoffsPerMinute),
		figure(w.Waiting), figure(w.Alerts), writer}
}

// toneOf rates the state of a world in a list.
func toneOf(w *messages.ListedWorld) tone {
	switch {
	case w.State != messages.WorldServed:
		return bad
	case w.Paused:
		return warn
	}
	return good
}

// figure returns a figure of a list; "" if it is left out.
func figure[N int | int64](n *N) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// whyUnserved says why worlds are not served.
func (t table) whyUnserved(all []messages.ListedWorld) {
	t.Flush()
	for i := range all {
		if all[i].State != messages.WorldServed {
			t.linef("%s is not served: %s", all[i].World, show(all[i].Why))
		}
	}
}

type worldCreateCommand struct {
	World     string   `arg:"" help:"Name of the new world: 1 to 64 of A-Z a-z 0-9 _ -."`
	WorldFile string   `help:"File with the towns of the world: a JSON array of snapshot.v1, as handoffd --world-file takes it." placeholder:"FILE"`
	Apply     string   `help:"Who applies the commands of its towns: local, plugin or rcon; the server's default for new worlds if left out." placeholder:"BINDING"`
	Set       []string `help:"Another setting of the world, such as history-per-town=20000; may be repeated." placeholder:"NAME=VALUE" sep:"none"`
}

func (c *worldCreateCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	if err := wire.ValidateWorld(c.World); err != nil {
		return usage(err)
	}
	settings, err := c.settings()
	if err != nil {
		return err
	}
	towns, err := c.towns(a)
	if err != nil {
		return err
	}
	if settings, err = server.CreateWorld(ctx, c.World, settings); err != nil {
		return err
	}
	if err := c.put(ctx, a, worldClient(server, c.World), towns); err != nil {
		return err
	}
	report := map[string]any{"world": c.World, "settings": settings, "towns": len(towns)}
	return a.print(report, func(t table) {
		t.linef("created the world %s with %s", c.World, phrase.Counted(len(towns), "town"))
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			t.row(name, settings[name])
		}
	})
}

// worldClient returns a client of another world of the same server.
func worldClient(server *client.Client, world string) *client.Client {
	return &client.Client{Conn: server.Conn, World: world, Timeout: server.Timeout}
}

// settings returns the settings of the flags by their names.
func (c *worldCreateCommand) settings() (map[string]string, error) {
	settings := map[string]string{}
	if c.Apply != "" {
		settings["apply"] = c.Apply
	}
	for _, text := range c.Set {
		name, value, err := cutSetting(text)
		if err != nil {
			return nil, err
		}
		settings[name] = value
	}
	return settings, nil
}

// cutSetting splits NAME=VALUE.
func cutSetting(text string) (name, value string, err error) {
	name, value, found := strings.Cut(text, "=")
	if !found {
		err = usagef("a setting is NAME=VALUE, not %q", text)
	}
	return name, value, err
}

// towns returns a request of town.put for each town of the file, which is validated.
func (c *worldCreateCommand) towns(a *app) (requests []jsontext.Value, err error) {
	if c.WorldFile == "" {
		return nil, nil
	}
	data, err := a.readUpTo(c.WorldFile, worldfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	if _, err := worldfile.Parse(data, func(apply.Binding) error { return nil }); err != nil {
		return nil, invalid(c.WorldFile, err)
	}
	elements, _, err := jsonfiles.Split(data)
	for _, element := range elements {
		var town jsonfiles.Members
		if err = json.Unmarshal(element, &town, jsonfiles.Lenient); err != nil {
			break
		}
		if town.Snapshot == nil {
			element = slices.Concat(jsontext.Value(`{"snapshot":`), element, jsontext.Value("}"))
		}
		requests = append(requests, element)
	}
	return requests, err
}

// servedTimeout bounds how long a town waits until the new world is served.
const servedTimeout = 30 * time.Second

// put puts towns into the new world.
func (c *worldCreateCommand) put(
	ctx context.Context, a *app, into *client.Client, towns []jsontext.Value,
) error {
	line := a.progressLine()
	defer line.clear()
	for i, town := range towns {
		line.show(false, "%d of %s", i, phrase.Counted(len(towns), "town"))
		err := putSoon(ctx, into, town)
		if err != nil {
			return fmt.Errorf("the world %s is created, and has the first %d of %d towns; put the others with "+
				"town put: %w", c.World, i, len(towns), err)
		}
	}
	return nil
}

// putSoon puts a town, and waits for the server that will serve the world. A town that is there is one
// whose answer was lost.
func putSoon(ctx context.Context, into *client.Client, town jsontext.Value) error {
	ctx, cancel := context.WithTimeout(ctx, max(servedTimeout, into.Timeout))
	defer cancel()
	err := into.Patiently(ctx, func() error {
		var put messages.Town
		_, err := into.Ask(ctx, wire.TownPut, town, &put)
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
	return ask(ctx, a, wire.WorldsRemove, request, func(t table, removed *messages.WorldRemoved) {
		t.linef("removed the world %s", removed.World)
	})
}

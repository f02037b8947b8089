package handoffd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// announce prints the served worlds and the line that scripts wait for: "ready ", or "standby " if
// other servers serve them.
func (c *serveCommand) announce(
	ctx context.Context, out io.Writer, srv *server.Server, config server.Config,
) {
	url := natsconn.RedactURLs(srv.URL())
	at := url
	if c.Server.External.URL == "" {
		at = samePort(c.Server.Embedded.Listen, url)
	}
	state := "standby"
	if srv.Serving() || c.Worlds.several() && len(srv.Worlds()) == 0 {
		state = "ready"
	}
	again := c.announced
	c.announced = state
	if c.Worlds.several() && again != "" { // the log says which of the worlds have changed
		if state != again {
			fmt.Fprintf(out, "%s %s\n", state, url)
		}
		return
	}
	worlds := ""
	if c.Worlds.several() {
		worlds = describeWorlds(srv)
	} else if engine := srv.Engine(); engine != nil {
		config.Engine.Apply = engine.Settings().Apply
		worlds = c.describeWorld(ctx, srv, engine, config)
	}
	fmt.Fprintf(out, "%s%s%s %s\n", c.describe(config, at, srv.HTTP()), worlds, state, url)
}

// describeWorld returns the settings and the towns of the only world, and a command to try.
func (c *serveCommand) describeWorld(
	ctx context.Context, srv *server.Server, engine *engine.Engine, config server.Config,
) string {
	flags, world := "", config.Worlds.Names[0]
	if url := natsconn.RedactURLs(srv.URL()); url != "nats://"+embedded.DefaultListen {
		flags += " --server " + url
	}
	if world != wire.DefaultWorld {
		flags += " --world " + world
	}
	towns := countTowns(ctx, engine)
	if file := config.Worlds.Files[world]; file != "" {
		towns += fmt.Sprintf(" (%d created from %s)", srv.Created(), file)
	}
	return fmt.Sprintf("%stowns     %s\ntry       handoffctl%s town list\n",
		describeSettings(engine.Settings()), towns, flags)
}

// maxDescribed is how many worlds are described one by one.
const maxDescribed = 20

// describeWorlds returns the state of each of several worlds.
func describeWorlds(srv *server.Server) string {
	var b strings.Builder
	worlds, served := srv.Worlds(), 0
	for i, world := range worlds {
		state := "served"
		if err := srv.ReadyOf(world); err != nil {
			state = err.Error()
		} else {
			served++
		}
		if i < maxDescribed {
			fmt.Fprintf(&b, "          %s: %s\n", world, state)
		}
	}
	return fmt.Sprintf("served    %d of %s\n%s", served, phrase.Counted(len(worlds), "world"), b.String())
}

// countTowns returns the number of towns, or why they cannot be counted in time.
func countTowns(ctx context.Context, engine *engine.Engine) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	towns, err := engine.CountTowns(ctx)
	if err != nil {
		return fmt.Sprintf("not counted: %v", err)
	}
	return fmt.Sprint(towns)
}

// check prints the worlds that would be served, or returns an error if the settings do not allow it.
func (c *serveCommand) check(ctx context.Context, out io.Writer, config server.Config) error {
	towns, err := server.Check(config)
	if err != nil {
		return err
	}
	settings := ""
	if len(config.Worlds.Files) > 0 {
		files := slices.Sorted(maps.Values(config.Worlds.Files))
		settings = fmt.Sprintf("towns     %d in %s\n", towns, strings.Join(files, ", "))
	}
	for _, world := range config.Worlds.Names {
		ofWorld, stored, err := c.checkSettings(ctx, config, world)
		if err != nil {
			return err
		}
		if !c.Worlds.several() {
			config.Engine.Settings = stored
		} else {
			ofWorld = strings.Replace(ofWorld, "settings ", "settings  "+world+":", 1)
		}
		settings += ofWorld
	}
	at := c.Server.Embedded.Listen
	if c.Server.External.URL != "" {
		at = natsconn.RedactURLs(c.Server.External.URL)
	}
	_, err = fmt.Fprintf(out, "%s%sthe settings are valid; nothing was started\n",
		c.describe(config, at, config.HTTP.Listen), settings)
	return err
}

// checkSettings returns the settings with which a world would be served, also as text.
func (c *serveCommand) checkSettings(
	ctx context.Context, config server.Config, world string,
) (text string, settings worldsettings.Settings, err error) {
	given := config.Engine.Settings
	if c.Worlds.several() { // the settings of the command line are for new worlds
		config.Engine.Settings = worldsettings.Settings{}
	}
	plan, err := server.CheckSettings(ctx, config, world)
	if err == nil && plan.New {
		plan.Settings = given.WithDefaults(plan.Settings)
	}
	switch {
	case errors.Is(err, commitlog.ErrFormat), errors.Is(err, commitlog.ErrHalfRestored):
		return "", given, err
	case err != nil:
		return fmt.Sprintf("settings  not compared with the stored ones: %v\n", err), given, nil
	}
	if err := plan.Refusal(world, c.Engine.Storage.DiscardHistory); err != nil {
		return "", given, err
	}
	config.Engine.Settings = plan.Settings
	if _, err := server.Check(config.Alone(world)); err != nil { // such as a world of rcon without a console
		return "", given, err
	}
	text = describeSettings(plan.Settings)
	if plan.Discards > 0 {
		text += fmt.Sprintf("discards  %s of %s (--%s, --discard-history)\n",
			phrase.Counted(plan.Discards, "message"), layout.LogStream(world),
			worldsettings.HistorySetting)
	}
	return text, plan.Settings, nil
}

func describeSettings(settings worldsettings.Settings) string {
	text := "settings "
	for _, s := range settings.List() {
		text += " " + s.Name + "=" + s.Value
	}
	return text + "\n"
}

// describe returns the world, its addresses, and those who may use them.
func (c *serveCommand) describe(config server.Config, at, console string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", describeNames(&config))
	if c.Server.External.URL == "" {
		fmt.Fprintf(&b, "listening %s (embedded NATS with JetStream)\n", at)
		fmt.Fprintf(&b, "data      %s (sync: %s)\n", c.Server.Embedded.Data, c.Server.Embedded.Sync)
	} else {
		fmt.Fprintf(&b, "joined    %s\n", at)
	}
	fmt.Fprintf(&b, "access    %s\napply     %s", whoConnects(&config),
		cmp.Or(config.Engine.Apply, "as the world says"))
	if config.Engine.Apply == apply.Plugin {
		world := append(config.Worlds.Names, "<world>")[0]
		if c.Worlds.several() {
			world = "<world>"
		}
		fmt.Fprintf(&b, " (asked on %s)", wire.ApplySubject(world, "<town token>"))
	}
	for _, world := range slices.Sorted(maps.Keys(config.Worlds.Consoles)) {
		fmt.Fprintf(&b, "\nrcon      the console at %s", config.Worlds.Consoles[world].Address)
		if c.Worlds.several() {
			fmt.Fprintf(&b, ", for the world %s", world)
		}
	}
	b.WriteByte('\n')
	models := ""
	if console != "" {
		models = "mcp       " + console + "/mcp"
		if c.Worlds.several() {
			models += "/<world>"
		}
		models += "\n"
	}
	switch {
	case c.Server.External.URL != "" && c.Server.External.WebSocket == "" && console != "":
		console = fmt.Sprintf("off: it takes --nats-websocket; %s has health and metrics", console)
	case c.HTTP == "" && console != "" && !strings.HasSuffix(console, server.DefaultHTTP):
		console += fmt.Sprintf(" (%s is taken)", server.DefaultHTTP)
	}
	fmt.Fprintf(&b, "console   %s\n%s", cmp.Or(console, "off"), models)
	if hooks := &config.Webhook; len(hooks.URLs) > 0 {
		fmt.Fprintf(&b, "webhooks  %s (%s)\n", strings.Join(hooks.Names(), ", "), hooks.Format)
	}
	return b.String()
}

// describeNames returns the names of the worlds to serve.
func describeNames(config *server.Config) string {
	switch {
	case config.Worlds.All:
		return "worlds    " + strings.Join(append(slices.Clone(config.Worlds.Names), "all others of this NATS"), ", ")
	case len(config.Worlds.Names) > 1:
		return "worlds    " + strings.Join(config.Worlds.Names, ", ")
	}
	return "world     " + config.Worlds.Names[0]
}

// whoConnects names those who may connect.
func whoConnects(config *server.Config) string {
	switch {
	case config.Access != nil:
		return usersByRole(config)
	case config.External.URL != "":
		return "as that NATS server says; towns and actors are not checked"
	case config.Open:
		return everyClient(config) + " may do everything (--open)"
	}
	return everyClient(config) + " may ask every verb; the streams are for the key in " +
		filepath.Join(config.Embedded.Data, embedded.OperatorKeyFile)
}

func everyClient(config *server.Config) string {
	if config.InsecureListen {
		return "every client (--insecure-listen)"
	}
	return "every client on this machine"
}

// usersByRole counts the users of the access file, and names its TLS.
func usersByRole(config *server.Config) string {
	counts := map[wire.Role]int{}
	for _, user := range config.Access.Users {
		counts[user.Role]++
	}
	var roles []string
	for _, role := range protocol.Roles() {
		if counts[role] > 0 {
			roles = append(roles, fmt.Sprintf("%s: %d", role, counts[role]))
		}
	}
	text := "users by role: " + strings.Join(roles, ", ")
	switch {
	case config.External.URL != "":
		return text
	case config.Access.TLS == access.TLS{}:
		return text + "; no TLS"
	case config.Access.TLS.ClientCAFile != "":
		return text + "; TLS, clients need a certificate"
	}
	return text + "; TLS"
}

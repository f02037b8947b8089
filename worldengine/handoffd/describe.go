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

// printState prints the served worlds and the line that scripts wait for: "ready ", or "standby " if
// other servers serve them.
func (c *serveCommand) printState(
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
	again := c.printedState
	c.printedState = state
	if c.Worlds.several() && again != "" { // the log says which of the worlds have changed
		if state != again {
			fmt.Fprintf(out, "%s %s\n", state, url)
		}
		return
	}
	var worlds text
	if c.Worlds.several() {
		worlds.worlds(srv)
	} else if engine := srv.Engine(); engine != nil {
		config.Engine.Binding = engine.Settings().Binding
		worlds.world(ctx, srv, engine, &config)
	}
	fmt.Fprintf(out, "%s%s%s %s\n", c.describe(config, at, srv.HTTP()), worlds.String(), state, url)
}

// text is a text of lines, each with its name in front.
type text struct{ strings.Builder }

func (t *text) line(name, format string, args ...any) {
	fmt.Fprintf(t, "%-10s%s\n", name, fmt.Sprintf(format, args...))
}

// world writes the settings and the towns of the only world, and a command to try.
func (t *text) world(ctx context.Context, srv *server.Server, engine *engine.Engine, config *server.Config) {
	flags, world := "", config.Worlds.Names[0]
	if url := natsconn.RedactURLs(srv.URL()); url != "nats://"+embedded.DefaultListen {
		flags += " --server " + url
	}
	if world != wire.DefaultWorld {
		flags += " --world " + world
	}
	towns := countTowns(ctx, engine)
	if file := config.Worlds.Files[world]; file != "" {
		towns += fmt.Sprintf(" (%d created from %s)", srv.TownsCreated(), file)
	}
	t.line("settings", "%s", describeSettings(engine.Settings()))
	t.line("towns", "%s", towns)
	t.line("try", "handoffctl%s town list", flags)
}

// maxDescribed is how many worlds are described one by one.
const maxDescribed = 20

// worlds writes the state of each of several worlds.
func (t *text) worlds(srv *server.Server) {
	var states text
	worlds, served := srv.Worlds(), 0
	for i, world := range worlds {
		state := "served"
		if err := srv.ReadyOf(world); err != nil {
			state = err.Error()
		} else {
			served++
		}
		if i < maxDescribed {
			states.line("", "%s: %s", world, state)
		}
	}
	t.line("served", "%d of %s", served, phrase.Counted(len(worlds), "world"))
	t.WriteString(states.String())
}

// countTowns returns the number of towns, or why they cannot be counted in time.
func countTowns(ctx context.Context, engine *engine.Engine) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	towns, err := engine.Towns().Count(ctx)
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
	var settings text
	if len(config.Worlds.Files) > 0 {
		files := slices.Sorted(maps.Values(config.Worlds.Files))
		settings.line("towns", "%d in %s", towns, strings.Join(files, ", "))
	}
	for _, world := range config.Worlds.Names {
		stored, err := c.checkSettings(ctx, config, world, &settings)
		if err != nil {
			return err
		}
		if !c.Worlds.several() {
			config.Engine.Settings = stored
		}
	}
	at := c.Server.Embedded.Listen
	if c.Server.External.URL != "" {
		at = natsconn.RedactURLs(c.Server.External.URL)
	}
	_, err = fmt.Fprintf(out, "%s%sthe settings are valid; nothing was started\n",
		c.describe(config, at, config.HTTP.Listen), settings.String())
	return err
}

// checkSettings returns the settings with which a world would be served, and writes them.
func (c *serveCommand) checkSettings(
	ctx context.Context, config server.Config, world string, t *text,
) (settings worldsettings.Settings, err error) {
	given, prefix := config.Engine.Settings, ""
	if c.Worlds.several() { // the settings of the command line are for new worlds
		config.Engine.Settings, prefix = worldsettings.Settings{}, world+": "
	}
	plan, err := server.CheckSettings(ctx, config, world)
	if err == nil && plan.New {
		plan.Settings = given.WithDefaults(plan.Settings)
	}
	switch {
	case errors.Is(err, commitlog.ErrFormat), errors.Is(err, commitlog.ErrHalfRestored):
		return given, err
	case err != nil:
		t.line("settings", "%snot compared with the stored ones: %v", prefix, err)
		return given, nil
	}
	if err := plan.Refusal(world, c.Engine.Storage.DiscardHistory); err != nil {
		return given, err
	}
	config.Engine.Settings = plan.Settings
	if _, err := server.Check(config.Alone(world)); err != nil { // such as a world of rcon without a console
		return given, err
	}
	t.line("settings", "%s%s", prefix, describeSettings(plan.Settings))
	if plan.Discards > 0 {
		t.line("discards", "%s of %s (--%s, --discard-history)", phrase.Counted(plan.Discards, "message"),
			layout.LogStream(world), worldsettings.HistorySetting)
	}
	return plan.Settings, nil
}

func describeSettings(settings worldsettings.Settings) string {
	var all []string
	for _, s := range settings.List() {
		all = append(all, s.Name+"="+s.Value)
	}
	return strings.Join(all, " ")
}

// describe returns the worlds to serve, their addresses, and those who may use them.
func (c *serveCommand) describe(config server.Config, at, console string) string {
	var t text
	several, name, names, world := c.Worlds.several(), "world", config.Worlds.Names, "<world>"
	if config.Worlds.All {
		names = append(slices.Clone(names), "all others of this NATS")
	}
	if several {
		name = "worlds"
	} else {
		world = names[0]
	}
	t.line(name, "%s", strings.Join(names, ", "))
	if c.Server.External.URL == "" {
		t.line("listening", "%s (embedded NATS with JetStream)", at)
		t.line("data", "%s (sync: %s)", c.Server.Embedded.Data, c.Server.Embedded.Sync)
	} else {
		t.line("joined", "%s", at)
	}
	t.line("access", "%s", whoConnects(&config))
	if config.Engine.Binding == apply.Plugin {
		t.line("apply", "%s (asked on %s)", apply.Plugin, wire.ApplySubject(world, "<town token>"))
	} else {
		t.line("apply", "%s", cmp.Or(config.Engine.Binding, "as the world says"))
	}
	for _, world := range slices.Sorted(maps.Keys(config.Worlds.Consoles)) {
		console := "the console at " + config.Worlds.Consoles[world].Address
		if several {
			console += ", for the world " + world
		}
		t.line("rcon", "%s", console)
	}
	c.describeHTTP(&t, console)
	if hooks := &config.Webhook; len(hooks.URLs) > 0 {
		t.line("webhooks", "%s (%s)", strings.Join(hooks.Names(), ", "), hooks.Format)
	}
	return t.String()
}

// describeHTTP writes the address of the console and the one for language models; "" if there is no HTTP.
func (c *serveCommand) describeHTTP(t *text, at string) {
	switch {
	case at == "":
		t.line("console", "off")
		return
	case c.Server.External.URL != "" && c.Server.External.WebSocket == "":
		t.line("console", "off: it takes --nats-websocket; %s has health and metrics", at)
	case c.HTTP == "" && !strings.HasSuffix(at, server.DefaultHTTP):
		t.line("console", "%s (%s is taken)", at, server.DefaultHTTP)
	default:
		t.line("console", "%s", at)
	}
	models := at + "/mcp"
	if c.Worlds.several() {
		models += "/<world>"
	}
	t.line("mcp", "%s", models)
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

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// announce prints the served world and the line that scripts wait for: "ready ", or "standby " if
// another server of the world serves.
func (c *serveCommand) announce(
	ctx context.Context, out io.Writer, srv *server.Server, config server.Config,
) {
	url := natsconn.WithoutSecrets(srv.URL())
	at := url
	if c.Server.NATS == "" {
		at = samePort(c.Server.Listen, url)
	}
	engine := srv.Engine()
	if engine == nil {
		fmt.Fprintf(out, "%sstandby %s\n", c.describe(config, at, srv.HTTP()), url)
		return
	}
	config.Engine.Apply = engine.Settings().Apply
	flags := ""
	if url != "nats://"+server.DefaultListen {
		flags += " --server " + url
	}
	if c.Engine.World != wire.DefaultWorld {
		flags += " --world " + c.Engine.World
	}
	towns := countTowns(ctx, engine)
	if c.Server.WorldFile != "" {
		towns += fmt.Sprintf(" (%d created from %s)", srv.Created(), c.Server.WorldFile)
	}
	fmt.Fprintf(out, "%s%stowns     %s\ntry       handoffctl%s town list\nready %s\n",
		c.describe(config, at, srv.HTTP()), describeSettings(engine.Settings()), towns, flags, url)
}

// countTowns returns the number of towns, or why they cannot be counted in time.
func countTowns(ctx context.Context, engine *worldengine.Engine) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	towns, err := engine.CountTowns(ctx)
	if err != nil {
		return fmt.Sprintf("not counted: %v", err)
	}
	return fmt.Sprint(towns)
}

// check prints the world that would be served, or returns an error if the settings do not allow it.
func (c *serveCommand) check(ctx context.Context, out io.Writer, config server.Config) error {
	towns, err := server.Check(config)
	if err != nil {
		return err
	}
	var settings string
	plan, err := server.CheckSettings(ctx, config)
	switch {
	case errors.Is(err, commitlog.ErrFormat), errors.Is(err, commitlog.ErrHalfRestored):
		return err
	case err != nil:
		settings = fmt.Sprintf("settings  not compared with the stored ones: %v\n", err)
	default:
		if err := plan.Refusal(c.Engine.World, c.Engine.DiscardHistory); err != nil {
			return err
		}
		config.Engine.Settings = plan.Settings
		if _, err := server.Check(config); err != nil { // such as a world of rcon without a console
			return err
		}
		settings = describeSettings(plan.Settings)
		if plan.Discards > 0 {
			settings += fmt.Sprintf("discards  %s of %s (--%s, --discard-history)\n",
				counted.Of(plan.Discards, "message"), wire.LogStream(c.Engine.World),
				commitlog.HistorySetting)
		}
	}
	if c.Server.WorldFile != "" {
		settings = fmt.Sprintf("towns     %d in %s\n", towns, c.Server.WorldFile) + settings
	}
	at := c.Server.Listen
	if c.Server.NATS != "" {
		at = natsconn.WithoutSecrets(c.Server.NATS)
	}
	_, err = fmt.Fprintf(out, "%s%sthe settings are valid; nothing was started\n",
		c.describe(config, at, config.HTTP), settings)
	return err
}

func describeSettings(settings commitlog.Settings) string {
	text := "settings "
	for _, s := range settings.List() {
		text += " " + s.Name + "=" + s.Value
	}
	return text + "\n"
}

// describe returns the world, its addresses, and those who may use them.
func (c *serveCommand) describe(config server.Config, at, console string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "world     %s\n", c.Engine.World)
	if c.Server.NATS == "" {
		fmt.Fprintf(&b, "listening %s (embedded NATS with JetStream)\n", at)
		fmt.Fprintf(&b, "data      %s (sync: %s)\n", c.Server.Data, c.Server.Sync)
	} else {
		fmt.Fprintf(&b, "joined    %s\n", at)
	}
	fmt.Fprintf(&b, "access    %s\napply     %s", whoConnects(&config),
		cmp.Or(config.Engine.Apply, "as the world says"))
	if config.Engine.Apply == apply.Plugin {
		fmt.Fprintf(&b, " (asked on %s)", wire.ApplySubject(c.Engine.World, "<town token>"))
	}
	if config.RCON != nil {
		fmt.Fprintf(&b, "\nrcon      the console at %s", config.RCON.Address)
	}
	b.WriteByte('\n')
	switch {
	case c.Server.NATS != "" && c.Server.NATSWebSocket == "" && console != "":
		console = fmt.Sprintf("off: it takes --nats-websocket; %s has health and metrics", console)
	case c.HTTP == "" && console != "" && !strings.HasSuffix(console, server.DefaultHTTP):
		console += fmt.Sprintf(" (%s is taken)", server.DefaultHTTP)
	}
	fmt.Fprintf(&b, "console   %s\n", cmp.Or(console, "off"))
	if hooks := &config.Webhook; len(hooks.URLs) > 0 {
		fmt.Fprintf(&b, "webhooks  %s (%s)\n", strings.Join(hooks.Names(), ", "), hooks.Format)
	}
	return b.String()
}

// whoConnects names those who may connect.
func whoConnects(config *server.Config) string {
	switch {
	case config.Access != nil:
		return usersByRole(config)
	case config.NATS != "":
		return "as that NATS server says; towns and actors are not checked"
	case config.Open:
		return everyClient(config) + " may do everything (--open)"
	}
	return everyClient(config) + " may ask every verb; the streams are for the key in " +
		filepath.Join(config.Data, server.OperatorKeyFile)
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
	for _, role := range wire.Roles() {
		if counts[role] > 0 {
			roles = append(roles, fmt.Sprintf("%s: %d", role, counts[role]))
		}
	}
	text := "users by role: " + strings.Join(roles, ", ")
	switch {
	case config.NATS != "":
		return text
	case config.Access.TLS == access.TLS{}:
		return text + "; no TLS"
	case config.Access.TLS.ClientCAFile != "":
		return text + "; TLS, clients need a certificate"
	}
	return text + "; TLS"
}

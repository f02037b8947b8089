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
	var b strings.Builder
	url := natsconn.WithoutSecrets(srv.URL())
	at := url
	if listen, err := samePort(c.Listen, url); err == nil && c.NATS == "" {
		at = listen
	}
	engine := srv.Engine()
	if engine == nil {
		c.describe(&b, &config, at, srv.HTTP())
		fmt.Fprintf(out, "%sstandby %s\n", b.String(), url)
		return
	}
	config.Engine.Apply = engine.Settings().Apply
	c.describe(&b, &config, at, srv.HTTP())
	describeSettings(&b, engine.Settings())
	describeTowns(ctx, &b, engine, srv.Created(), c.WorldFile)
	flags := ""
	if url != "nats://"+server.DefaultListen {
		flags += " --server " + url
	}
	if c.World != wire.DefaultWorld {
		flags += " --world " + c.World
	}
	fmt.Fprintf(&b, "try       handoffctl%s town list\n", flags)
	fmt.Fprintf(&b, "ready %s\n", url)
	io.WriteString(out, b.String())
}

// check prints the world that would be served. Each error gives exit status 2.
func (c *serveCommand) check(ctx context.Context, out io.Writer, config *server.Config) error {
	towns, err := server.Check(ctx, *config)
	if err != nil {
		return fmt.Errorf("%w: %w", errSettings, err)
	}
	var b strings.Builder
	at := c.Listen
	if c.NATS != "" {
		at = natsconn.WithoutSecrets(c.NATS)
	}
	plan, err := server.CheckSettings(ctx, *config)
	if err == nil {
		config.Engine.Apply = plan.Settings.Apply
	}
	c.describe(&b, config, at, config.HTTP)
	if c.WorldFile != "" {
		fmt.Fprintf(&b, "towns     %d in %s\n", towns, c.WorldFile)
	}
	if err := c.compare(&b, plan, err); err != nil {
		return err
	}
	b.WriteString("the settings are valid; nothing was started\n")
	_, err = io.WriteString(out, b.String())
	return err
}

// compare prints the settings of the world, and returns an error if it may not be served with the
// given ones. err is the reason if the world could not be looked at, which compare prints.
func (c *serveCommand) compare(b *strings.Builder, plan *commitlog.Plan, err error) error {
	if errors.Is(err, commitlog.ErrFormat) {
		return fmt.Errorf("%w: %w", errSettings, err)
	}
	if err != nil {
		fmt.Fprintf(b, "settings  not compared with those of the world: %v\n", err)
		return nil
	}
	if err := plan.Refusal(c.World, c.DiscardHistory); err != nil {
		return fmt.Errorf("%w: %w", errSettings, err)
	}
	describeSettings(b, plan.Settings)
	for _, d := range plan.Discards {
		fmt.Fprintf(b, "discards  %s of %s (--%s, --discard-history)\n",
			counted.Of(d.Messages, "message"), d.Stream, d.Setting)
	}
	return nil
}

func describeSettings(b *strings.Builder, settings commitlog.Settings) {
	b.WriteString("settings ")
	for _, s := range settings.List() {
		fmt.Fprintf(b, " %s=%s", s.Name, s.Value)
	}
	b.WriteString("\n")
}

// describeTowns prints how many towns there are, and how many of them are new.
func describeTowns(
	ctx context.Context, b *strings.Builder, engine *worldengine.Engine, created int,
	worldFile string,
) {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	towns, err := engine.CountTowns(ctx)
	if err != nil {
		fmt.Fprintf(b, "towns     not counted: %v", err)
	} else {
		fmt.Fprintf(b, "towns     %d", towns)
	}
	if worldFile != "" {
		fmt.Fprintf(b, " (%d created from %s)", created, worldFile)
	}
	b.WriteString("\n")
}

// countTimeout bounds how long a start waits for the number of towns.
const countTimeout = 5 * time.Second

// describe prints the world, its addresses, and those who may use them.
func (c *serveCommand) describe(b *strings.Builder, config *server.Config, at, console string) {
	fmt.Fprintf(b, "world     %s\n", c.World)
	if c.NATS == "" {
		fmt.Fprintf(b, "listening %s (embedded NATS with JetStream)\n", at)
		fmt.Fprintf(b, "data      %s (sync: %s)\n", c.Data, c.Sync)
	} else {
		fmt.Fprintf(b, "joined    %s\n", at)
	}
	fmt.Fprintf(b, "access    %s\n", whoConnects(config))
	fmt.Fprintf(b, "apply     %s\n", whoApplies(config))
	switch {
	case c.NATS != "" && c.WebSocket == "" && console != "":
		fmt.Fprintf(b, "console   off: it takes --nats-websocket; %s has health and metrics\n", console)
	case c.HTTP == "" && console != "" && !strings.HasSuffix(console, server.DefaultHTTP):
		fmt.Fprintf(b, "console   %s (%s is taken)\n", console, server.DefaultHTTP)
	default:
		fmt.Fprintf(b, "console   %s\n", cmp.Or(console, "off"))
	}
	if len(config.Webhook.URLs) > 0 {
		fmt.Fprintf(b, "webhooks  %s (%s)\n", strings.Join(config.Webhook.Names(), ", "),
			config.Webhook.Format)
	}
}

// whoConnects names those who may connect.
func whoConnects(config *server.Config) string {
	switch {
	case config.Access != nil:
		return usersByRole(config.Access.Users) + encryption(config)
	case config.NATS != "":
		return "as that NATS server says; towns and actors are not checked"
	}
	who, what := "every client on this machine", "ask every verb; the streams are for the key in "+
		filepath.Join(config.Data, server.OperatorKeyFile)
	if config.InsecureListen {
		who = "every client (--insecure-listen)"
	}
	if config.Open {
		what = "do everything (--open)"
	}
	return who + " may " + what
}

func usersByRole(users []access.User) string {
	var counts []string
	for _, role := range access.Roles() {
		n := 0
		for i := range users {
			if users[i].Role == role {
				n++
			}
		}
		if n > 0 {
			counts = append(counts, fmt.Sprintf("%s: %d", role, n))
		}
	}
	return "users by role: " + strings.Join(counts, ", ")
}

func encryption(config *server.Config) string {
	switch {
	case config.NATS != "":
		return ""
	case config.Access.TLS == access.TLS{}:
		return "; no TLS"
	case config.Access.TLS.ClientCAFile != "":
		return "; TLS, clients need a certificate"
	}
	return "; TLS"
}

// whoApplies names the binding that applies accepted commands: of towns without their own, and of
// others.
func whoApplies(config *server.Config) string {
	console := ""
	if config.RCON != nil {
		console = "the console at " + config.RCON.Address
	}
	text := string(config.Engine.Apply)
	switch config.Engine.Apply {
	case apply.RCON:
		return text + " (" + console + ")"
	case apply.Plugin:
		text += " (asked on " + wire.ApplySubject(config.Engine.World, "<town token>") + ")"
	case "":
		text = "as the world says"
	default:
		text += " (the built-in rules)"
	}
	if console != "" {
		text += "; rcon (" + console + ") for towns that say so"
	}
	return text
}

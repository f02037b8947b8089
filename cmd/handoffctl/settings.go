package main

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// settingsGetCommand shows the settings of the world.
type settingsGetCommand struct{}

func (settingsGetCommand) Help() string {
	return `Shows the settings that are stored with the world. A server that is started with others
is refused. With access control the command requires the role operator.

Example:

    handoffctl world settings get`
}

func (c *settingsGetCommand) Run(ctx context.Context, a *app) error {
	return a.withSettings(ctx, func(js jetstream.JetStream) (*commitlog.Plan, error) {
		plan, err := commitlog.PlanSettings(ctx, js, a.flags.World, commitlog.Settings{})
		if err == nil && plan.New {
			err = commitlog.ErrNoWorld
		}
		return plan, err
	})
}

// settingsSetCommand changes settings of the world.
type settingsSetCommand struct {
	Settings []string `arg:"" help:"NAME=VALUE, with the names that settings get shows."`
	Discard  bool     `name:"discard-history" help:"Change the settings even if that discards messages beyond the new limits."`
}

func (settingsSetCommand) Help() string {
	return `Limits of the streams change at once. Running servers use a new default binding (apply)
and new types to approve (require-approval) after their next start; NATS uses a new compression
(compress) after its next start. A change that would discard messages is refused with their number,
unless --discard-history is given: take a backup first. With access control the command requires the
role engine.

Example:

    handoffctl world settings set history-per-town=20000 compress=all`
}

func (c *settingsSetCommand) Run(ctx context.Context, a *app) error {
	var given commitlog.Settings
	for _, text := range c.Settings {
		name, value, found := strings.Cut(text, "=")
		if !found {
			return usagef("a setting is NAME=VALUE, not %q", text)
		}
		if err := given.Set(name, value); err != nil {
			return usagef("%s", sentence(err))
		}
	}
	if err := given.Validate(); err != nil {
		return usagef("%s", sentence(err))
	}
	return a.withSettings(ctx, func(js jetstream.JetStream) (*commitlog.Plan, error) {
		return commitlog.ChangeSettings(ctx, js, a.flags.World, given, c.Discard)
	})
}

// withSettings connects to the streams of the world, and prints the settings that do returns.
func (a *app) withSettings(
	ctx context.Context, do func(jetstream.JetStream) (*commitlog.Plan, error),
) error {
	nc, err := a.dialStreams("handoffctl world settings", nats.NoReconnect())
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return unavailable("JETSTREAM", err)
	}
	plan, err := do(js)
	if refused, ok := errors.AsType[*commitlog.SettingsError](err); ok {
		return failedf("nothing is changed, since it would discard %s of %s (%s): take a backup, and "+
			"give --discard-history", counted.Of(refused.Discards, "message"),
			wire.LogStream(a.flags.World), commitlog.HistorySetting)
	}
	if err != nil {
		return a.streamError(err, nc.LastError(), "SETTINGS", "see or change the settings of the "+
			"world, which takes the role operator, and engine for set")
	}
	list, byName := plan.Settings.List(), map[string]string{}
	for _, s := range list {
		byName[s.Name] = s.Value
	}
	return a.print(map[string]any{"settings": byName}, func(t table) {
		for _, s := range list {
			t.linef("%s\t%s", s.Name, s.Value)
		}
	})
}

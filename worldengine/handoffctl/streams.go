package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/worldsettings"
)

// openStreams connects to the streams of the world. NATS does not answer a request that it denies.
// So if NATS denies one, the returned context ends, with the denial as its cause.
func (a *app) openStreams(
	ctx context.Context, name string, more ...nats.Option,
) (context.Context, jetstream.JetStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	denied := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(err)
		}
	})
	nc, err := a.dialStreams(name, append(more, denied)...)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	return ctx, js, err
}

// streamError returns the error of work on the streams of the world. ctx is from openStreams. An
// error that is no denial gets the code.
func (a *app) streamError(ctx context.Context, err error, code string) error {
	denied := context.Cause(ctx)
	switch {
	case errors.Is(err, commitlog.ErrNoWorld):
		return unavailablef("NO_WORLD", err, "there is no world %s on this server: check --world "+
			"and --server", a.flags.World)
	case errors.Is(denied, nats.ErrPermissionViolation):
		return unavailablef(permissionDenied, denied, "this user may not use the streams of the "+
			"world: to read them takes the role operator; fsck --repair, deadletter replay and "+
			"world settings set take the role engine: %s", denied)
	}
	return unavailable(code, err)
}

type fsckCommand struct {
	Repair      bool   `help:"Put damaged towns back, if that loses no commit."`
	MendTowns   bool   `help:"With --repair: also put damaged towns back to their last readable commits. This loses commits that clients may have seen."`
	Index       string `help:"Also compare the index in this directory, DATA/index/WORLD of a server, with the log." placeholder:"DIR" type:"existingdir"`
	Replicas    bool   `help:"Also compare the replicas of the log on the nodes of a NATS cluster."`
	MaxFindings int    `help:"Maximum number of findings to show; all are counted." default:"100"`
}

func (c *fsckCommand) Run(ctx context.Context, a *app) error {
	if c.MendTowns && !c.Repair {
		return usagef("--mend-towns changes a world: give it with --repair")
	}
	ctx, js, err := a.openStreams(ctx, "handoffctl fsck")
	if err != nil {
		return err
	}
	line := a.progressLine()
	report, err := fsck.Run(ctx, js.Conn(), a.flags.World, fsck.Options{
		Repair: c.Repair, RepairTowns: c.MendTowns, MaxFindings: c.MaxFindings, Index: c.Index,
		Replicas: c.Replicas, Logger: slog.New(slog.NewTextHandler(a.err, nil)),
		Progress: func(seq, end uint64) {
			// The work behind the log may take long, so the end of the log is always shown.
			line.show(seq >= end, "log sequence %d of %d, %d %%", seq, end, 100*seq/max(end, 1))
		},
	})
	line.clear()
	if err != nil {
		return a.streamError(ctx, err, "LOG_UNAVAILABLE")
	}
	return cmp.Or(a.print(report, "fsck", report),
		failedIf(!report.Clean(), "the world %s is not as it has to be", a.flags.World))
}

type settingsGetCommand struct{}

func (c *settingsGetCommand) Run(ctx context.Context, a *app) error {
	ctx, js, err := a.openStreams(ctx, "handoffctl world settings", nats.NoReconnect())
	if err != nil {
		return err
	}
	plan, err := worldsettings.MakePlan(ctx, js, a.flags.World, worldsettings.Settings{})
	if err == nil && plan.New {
		err = commitlog.ErrNoWorld
	}
	return a.printSettings(ctx, plan, err)
}

type settingsSetCommand struct {
	Settings []setting `arg:"" help:"NAME=VALUE, with the names that settings get shows."`
	Discard  bool      `name:"discard-history" help:"Change the settings even if that discards messages beyond the new limits."`
}

func (c *settingsSetCommand) Run(ctx context.Context, a *app) error {
	var given worldsettings.Settings
	for _, s := range c.Settings {
		if err := given.Set(s.name, s.value); err != nil {
			return usage(err)
		}
	}
	if err := given.Validate(); err != nil {
		return usage(err)
	}
	ctx, js, err := a.openStreams(ctx, "handoffctl world settings", nats.NoReconnect())
	if err != nil {
		return err
	}
	plan, err := worldsettings.Change(ctx, js, a.flags.World, given, c.Discard)
	if refused, ok := errors.AsType[*worldsettings.DifferError](err); ok {
		return failedf("nothing is changed, since it would discard %s of %s (%s): take a backup, and "+
			"give --discard-history", phrase.Counted(refused.Discards, "message"),
			layout.LogStream(a.flags.World), worldsettings.HistorySetting)
	}
	return a.printSettings(ctx, plan, err)
}

// printSettings prints the settings of the world, or returns the error.
func (a *app) printSettings(ctx context.Context, plan *worldsettings.Plan, err error) error {
	if err != nil {
		return a.streamError(ctx, err, "SETTINGS")
	}
	list, byName := plan.Settings.List(), map[string]string{}
	for _, s := range list {
		byName[s.Name] = s.Value
	}
	return a.print(map[string]any{"settings": byName}, "settings", list)
}

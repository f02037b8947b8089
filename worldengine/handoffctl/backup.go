package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/store/backup"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

type backupCommand struct {
	Dir    string   `arg:"" help:"Directory for the backup, empty or new."`
	Worlds []string `help:"Copy these worlds, or all of the server, each into the directory of its name in DIR." placeholder:"all|NAME"`
}

func (c *backupCommand) Run(ctx context.Context, a *app) error {
	ctx, js, err := a.openStreams(ctx, "handoffctl backup", nats.NoReconnect())
	if err != nil {
		return err
	}
	if len(c.Worlds) > 0 {
		return c.several(ctx, a, js)
	}
	manifest, err := a.backup(ctx, js, c.Dir)
	if err != nil {
		return err
	}
	return cmp.Or(a.print(manifest, "backups", []copied{{Dir: c.Dir, Manifest: manifest}}), incomplete(manifest))
}

// backup copies the world of the flags to a directory.
func (a *app) backup(ctx context.Context, js jetstream.JetStream, dir string) (*backup.Manifest, error) {
	line := a.progressLine()
	defer line.clear()
	manifest, err := backup.Create(ctx, js.Conn(), dir, backup.Options{
		World: a.flags.World, OnProgress: func(stream string, bytes int64) {
			line.show(false, "%s: %s", stream, diskspace.Size(uint64(bytes)))
		}})
	switch {
	case errors.Is(err, backup.ErrDirectory):
		return nil, usage(err)
	case errors.Is(err, backup.ErrOverwritten):
		return nil, failedf("%s", sentence(err))
	case err != nil:
		return nil, a.streamError(ctx, err, "BACKUP_FAILED")
	}
	return manifest, nil
}

// incomplete returns an error if a backup lacks messages. It names the towns whose last message could not be read.
func incomplete(m *backup.Manifest) error {
	var towns []string
	for _, u := range m.Unreadable {
		towns = append(towns, fmt.Sprintf("%s (log sequence %d)", cmp.Or(u.Town, u.Subject), u.Sequence))
	}
	return failedIf(towns != nil, "the backup is made, and has what can be read; the last message of these towns was "+
		"changed on the disk, so a restore has them as they were before it, or not at all: %s", strings.Join(towns, ", "))
}

// copied is the outcome for one world of a backup of several.
type copied struct {
	World    string           `json:"world"`
	Dir      string           `json:"dir"`
	Manifest *backup.Manifest `json:"manifest,omitempty"`
	Error    string           `json:"error,omitempty"`
}

// several copies each world to a directory of its own.
func (c *backupCommand) several(ctx context.Context, a *app, js jetstream.JetStream) error {
	worlds, err := c.worlds(ctx, a, js)
	if err != nil {
		return err
	}
	all, failed := make([]copied, len(worlds)), []string{}
	for i, world := range worlds {
		one := &all[i]
		one.World, one.Dir = world, filepath.Join(c.Dir, world)
		a.flags.World = world
		if one.Manifest, err = a.backup(ctx, js, one.Dir); err == nil {
			err = incomplete(one.Manifest)
		}
		if err != nil {
			one.Error = sentence(err)
			failed = append(failed, world)
		}
	}
	return cmp.Or(a.print(map[string]any{"worlds": all}, "backups", all),
		failedIf(len(failed) > 0, "no whole backup was made of %s: %s", phrase.Counted(len(failed), "world"),
			strings.Join(failed, ", ")))
}

// worlds returns the worlds to copy, in the order of their names.
func (c *backupCommand) worlds(ctx context.Context, a *app, js jetstream.JetStream) ([]string, error) {
	if slices.Equal(c.Worlds, []string{"all"}) {
		all, err := commitlog.Worlds(ctx, js)
		switch denied := context.Cause(ctx); {
		case errors.Is(denied, nats.ErrPermissionViolation):
			return nil, unavailablef(permissionDenied, denied, "this user may not list all worlds: "+
				"name the worlds to copy instead of all: %s", denied)
		case err != nil:
			return nil, a.streamError(ctx, err, "LOG_UNAVAILABLE")
		case len(all) == 0:
			return nil, failedf("there is no world on this server: check --server")
		}
		return all, nil
	}
	for _, world := range c.Worlds {
		if err := wire.ValidateWorld(world); err != nil {
			return nil, usagef("--worlds: %s", sentence(err))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(c.Worlds))), nil
}

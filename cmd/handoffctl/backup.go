package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/storage"
)

// backupCommand makes a backup of a world.
type backupCommand struct {
	Dir string `arg:"" help:"Directory for the backup, empty or new."`
}

func (backupCommand) Help() string {
	return `Copies a world while it is served. The backup has everything that was answered before
the command began, and some later commits. Protect it like the world itself: it has all of its data.
If a town's last message is damaged, the backup leaves it out, and the exit status is 1. handoffd
restore makes a world from the backup. On a terminal a line shows the progress. With -o json it
prints the manifest. With access control it requires the role operator.

Example:

    handoffctl backup backup-2026-11-21`
}

func (c *backupCommand) Run(ctx context.Context, a *app) error {
	nc, err := a.openStreams(ctx, "handoffctl backup", "make a backup", nats.NoReconnect())
	if err != nil {
		return err
	}
	line := a.progressLine()
	options := backup.Options{World: a.flags.World, Copying: func(stream string, bytes int64) {
		line.show(false, "%s: %s", stream, storage.Size(uint64(bytes)))
	}}
	if !a.json() {
		options.Copied = func(s backup.Stream) {
			line.clear()
			_ = a.printf("%s: %s up to sequence %d, %s\n", s.Name,
				counted.Of(s.Messages, "message"), s.LastSeq, counted.Of(s.Data.Bytes, "byte"))
		}
	}
	manifest, err := backup.Take(ctx, nc, c.Dir, options)
	line.clear()
	switch {
	case errors.Is(err, backup.ErrDirectory):
		return usagef("%s", sentence(err))
	case errors.Is(err, backup.ErrOutrun):
		return failedf("%s", sentence(err))
	case err != nil:
		return a.streamError(err, nc.LastError(), "BACKUP_FAILED", "make a backup")
	case a.json():
		err = a.printJSON(manifest)
	case len(manifest.Unreadable) == 0:
		err = a.printf("the backup of %s is whole; to restore it: handoffd restore %s\n",
			a.flags.World, c.Dir)
	}
	if err != nil || len(manifest.Unreadable) == 0 {
		return err
	}
	return failedf("%s", lacks(manifest.Unreadable))
}

// lacks names the towns whose last message a backup could not read.
func lacks(all []fsck.Unreadable) string {
	var towns []string
	for _, u := range all {
		towns = append(towns, fmt.Sprintf("%s (log sequence %d)",
			cmp.Or(u.Town, u.Subject), u.Sequence))
	}
	return "the backup is made, and has what can be read; the last message of these towns was " +
		"changed on the disk, so a restore has them as they were before it, or not at all: " +
		strings.Join(towns, ", ")
}

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"worldengine/cmd/internal/counted"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// restoreCommand makes a world of a backup, before a server serves it.
type restoreCommand struct {
	Dir        string           `arg:"" help:"Directory that handoffctl backup made."`
	Data       string           `help:"Directory of the embedded NATS of a server that is not running; it may not have the world." default:"./handoffd-data" type:"path"`
	World      string           `help:"Name of the world, which the backup must be of." default:"main"`
	NATS       string           `name:"nats" help:"URL of an existing NATS with JetStream to restore to, instead of a data directory." placeholder:"URL"`
	Connection natsconn.Options `embed:""`
	Replicas   int              `help:"How many servers of a NATS cluster keep each stream from now on: the --replicas of handoffd." default:"1"`
}

// Help is the command's long help.
func (restoreCommand) Help() string {
	return `Reads the whole backup first. It changes nothing if a file is missing or was altered,
if the backup is of another world, or if the world exists already. An interrupted restore may
be run again. The settings of the world come with it. Afterwards start handoffd, and run handoffctl
fsck.

Example:

    handoffd restore backup-2026-11-21 --data ./handoffd-data`
}

// Run restores.
func (c *restoreCommand) Run(ctx context.Context, s streams) error {
	if err := wire.ValidateWorld(c.World); err != nil {
		return fmt.Errorf("%w: --world: %w", errUsage, err)
	}
	if c.Replicas < 1 || c.NATS == "" && c.Replicas > 1 {
		return fmt.Errorf("%w: --replicas must be above 0, and above 1 only with --nats", errUsage)
	}
	restored, err := server.Restore(ctx, server.Config{
		Data: c.Data, NATS: c.NATS, Connection: c.Connection,
		Logger: newLogger(s.log, "text", slog.LevelWarn),
	}, c.Dir, backup.RestoreOptions{
		World: c.World, Replicas: c.Replicas,
		Restored: func(stream backup.Stream) { printStream(s.out, stream) },
	})
	if err != nil {
		return err
	}
	to := c.Data
	if c.NATS != "" {
		to = natsconn.WithoutSecrets(c.NATS)
	}
	_, err = fmt.Fprintf(s.out, "restored  world %s of %s to %s; commands being applied: %d\n"+
		"next      start handoffd with its settings, then run handoffctl fsck\n",
		c.World, restored.Manifest.TakenAt.Format("2006-01-02 15:04:05Z"), to, restored.Pending)
	return err
}

func printStream(out io.Writer, s backup.Stream) {
	fmt.Fprintf(out, "stream    %s: %s up to sequence %d\n", s.Name,
		counted.Of(s.Messages, "message"), s.LastSeq)
}

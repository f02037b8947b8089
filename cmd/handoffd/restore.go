package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"worldengine/worldengine"
	"worldengine/worldengine/backup"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
)

// restoreCommand makes a world of a backup, before a server serves it.
type restoreCommand struct {
	Dir        string           `arg:"" help:"Directory that handoffctl backup has made."`
	Data       string           `help:"Directory of the embedded NATS of a server that is not running; it may not have the world." default:"./handoffd-data" type:"path"`
	World      string           `help:"Name of the world that is to be in the backup." default:"main"`
	NATS       string           `name:"nats" help:"URL of an existing NATS with JetStream to restore to, instead of a data directory." placeholder:"URL"`
	Connection natsconn.Options `embed:""`
	Replicas   int              `help:"How many servers of a NATS cluster keep each stream from now on: what handoffd will be started with." default:"1"`
}

// Help is the command's long help.
func (restoreCommand) Help() string {
	return `Reads the whole backup first and touches nothing where a file is missing or was altered, where the backup is of
another world, or where there is such a world already. A restore that was interrupted may be run again.
Start handoffd afterwards, with the retentions that it had, and run handoffctl fsck.

Example:

    handoffd restore backup-2026-11-21 --data ./handoffd-data`
}

// Run restores.
func (c *restoreCommand) Run(ctx context.Context, s streams) error {
	if err := worldengine.ValidateWorld(c.World); err != nil {
		return fmt.Errorf("%w: --world: %w", errUsage, err)
	}
	if c.Replicas < 1 || c.NATS == "" && c.Replicas > 1 {
		return fmt.Errorf("%w: --replicas must be above 0, and above 1 only with --nats", errUsage)
	}
	restored, err := server.Restore(ctx, server.Config{
		Data: c.Data, NATS: c.NATS, Connection: c.Connection, Logger: newLogger(s.log, "text", slog.LevelWarn),
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
	fmt.Fprintf(out, "stream    %s: %d messages up to sequence %d\n", s.Name, s.Messages, s.LastSeq)
}

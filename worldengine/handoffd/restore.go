package handoffd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/alecthomas/kong"

	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/backup"
)

// restoreCommand makes a world of a backup, before a server serves it.
type restoreCommand struct {
	Dir        string           `arg:"" help:"Directory that handoffctl backup made."`
	Data       string           `help:"Directory of the embedded NATS of a server that is not running. The world must not exist there." default:"./handoffd-data" type:"path"`
	World      string           `help:"Name of the world in the backup." default:"main"`
	As         string           `help:"Name of the restored world; by default its name in the backup." placeholder:"NAME"`
	NATS       string           `name:"nats" help:"URL of an existing NATS with JetStream, or of a handoffd that is running, to restore to instead of a data directory." placeholder:"URL"`
	Connection natsconn.Options `embed:""`
	Replicas   int              `help:"Number of servers of a NATS cluster that keep each stream from now on: the --replicas of handoffd." default:"1"`
}

// Help is the command's long help.
func (restoreCommand) Help() string {
	return `Reads the whole backup first. It changes nothing if a file is missing or was altered,
if the backup is of another world, or if the world exists already. An interrupted restore may
be run again. The settings of the world come with it. Afterwards start handoffd, and run handoffctl
fsck.

With --as the world gets another name, and may stand beside the world that was copied. Run events and
alerts from before keep the old name in their projectId.

Examples:

    handoffd restore backup-2026-11-21 --data ./handoffd-data
    handoffd restore backup-2026-11-21 --as rehearsal --data ./handoffd-data`
}

// Validate refuses an invalid world name, and replicas of a data directory.
func (c *restoreCommand) Validate() error {
	if !validReplicas(c.Replicas, c.NATS) {
		return errors.New(replicasRule)
	}
	if c.As = cmp.Or(c.As, c.World); validateWorld(c.As) != nil {
		return validateWorld(c.As)
	}
	return validateWorld(c.World)
}

func (c *restoreCommand) Run(ctx context.Context, s outputs, line *kong.Context) error {
	logger := newLogger(s.log, "text", slog.LevelWarn)
	if c.NATS != "" {
		warnEmbedded(logger, line, "The world is restored to that NATS")
	}
	restored, err := server.Restore(ctx, server.Config{
		Embedded: embedded.Config{Data: c.Data},
		External: server.External{URL: c.NATS, Connection: c.Connection},
		Logger:   logger,
	}, c.Dir, backup.RestoreOptions{
		World: c.World, As: c.As, Replicas: c.Replicas,
		OnStream: func(stream backup.Stream) {
			fmt.Fprintf(s.out, "stream    %s: %s up to sequence %d\n", stream.Name,
				phrase.Counted(stream.Messages, "message"), stream.LastSeq)
		},
	})
	if err != nil {
		return err
	}
	to := c.Data
	if c.NATS != "" {
		to = natsconn.RedactURLs(c.NATS)
	}
	_, err = fmt.Fprintf(s.out, "restored  world %s of %s to %s; commands being applied: %d\n"+
		"next      start handoffd with its settings, then run handoffctl fsck\n",
		c.As, restored.Manifest.CreatedAt.Format("2006-01-02 15:04:05Z"), to, restored.Pending)
	return err
}

package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/tool/deadletters"
)

// openLetters opens the dead letters. The context is from openStreams. The error may be ErrNoBus.
func (a *app) openLetters(ctx context.Context) (context.Context, *deadletters.Box, error) {
	ctx, js, err := a.openStreams(ctx, "handoffctl deadletter")
	if err != nil {
		return nil, nil, err
	}
	box, err := deadletters.Open(ctx, js, a.flags.World)
	if errors.Is(err, deadletters.ErrNoBus) {
		return nil, nil, unavailablef("NO_BUS", err,
			"the world %s has no bus: a server with --bus jetstream makes it", a.flags.World)
	}
	if err != nil {
		return nil, nil, a.streamError(ctx, err, "NO_DEAD_LETTERS")
	}
	return ctx, box, nil
}

type deadLetterListCommand struct {
	limitFlag `embed:""`
}

func (c *deadLetterListCommand) Run(ctx context.Context, a *app) error {
	found := []deadletters.Letter{}
	_, box, err := a.openLetters(ctx)
	switch {
	case errors.Is(err, deadletters.ErrNoBus):
	case err != nil:
		return err
	case c.Limit > 0:
		found = box.Letters[:min(uint(len(box.Letters)), c.Limit)]
	default:
		found = box.Letters
	}
	return a.print(map[string]any{"letters": found}, "dead letters", found)
}

type deadLetterShowCommand struct {
	Number uint64 `arg:"" help:"Number of the letter in deadletter list."`
}

func (c *deadLetterShowCommand) Run(ctx context.Context, a *app) error {
	ctx, box, err := a.openLetters(ctx)
	if err != nil {
		return err
	}
	if len(box.Unknown([]uint64{c.Number})) > 0 {
		return usagef("there is no dead letter %d", c.Number)
	}
	letter, body, err := box.Read(ctx, c.Number)
	if err != nil {
		return a.streamError(ctx, err, "NO_DEAD_LETTERS")
	}
	if a.raw() {
		return a.printRaw(body)
	}
	return a.print(letter, "dead letter", map[string]any{"Letter": letter, "Body": string(body)})
}

// deadLetterReplayCommand publishes dead letters on the bus.
type deadLetterReplayCommand struct {
	Numbers []uint64    `arg:"" optional:"" name:"number" help:"Numbers of the letters in deadletter list."`
	All     bool        `help:"Replay every letter."`
	Signal  signalFlags `embed:""`
}

func (c *deadLetterReplayCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	if c.All == (len(c.Numbers) > 0) {
		return usagef("give the numbers of the letters, or --all")
	}
	streams, box, err := a.openLetters(ctx)
	if err != nil {
		return err
	}
	if unknown := box.Unknown(c.Numbers); len(unknown) > 0 {
		return usagef("there is no dead letter %d", unknown[0])
	}
	letters, err := box.Replay(streams, c.Numbers, slog.New(slog.NewTextHandler(a.err, nil)))
	if err != nil {
		return a.streamError(streams, err, "BUS_UNAVAILABLE")
	}
	reason := cmp.Or(c.Signal.Reason, "the dead letter was replayed")
	if err := deadletters.Acknowledge(ctx, server, c.Signal.actor(a), reason, letters); err != nil {
		a.notef("the alerts about the letters are not all acknowledged: %s", sentence(err))
	}
	staying := 0
	for _, l := range letters {
		if !l.Replayed {
			staying++
		}
	}
	return cmp.Or(a.print(map[string]any{"letters": letters}, "replayed letters", letters),
		failedIf(staying > 0, "%d of %d dead letters stay: the stream refuses the event again, "+
			"or its record of the log is damaged or gone", staying, len(letters)))
}

package handoffctl

import (
	"cmp"
	"context"
	"errors"

	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/tempserver"
	"worldengine/worldengine/internal/tool/bench"
)

type benchCommand struct {
	bench.Config `embed:""`
}

func (c *benchCommand) Run(ctx context.Context, a *app) (err error) {
	if !c.Join {
		config := server.Config{Embedded: embedded.Config{Sync: c.Sync}}
		config.Worlds.Names = c.WorldNames(a.flags.World)
		srv, end, err := tempserver.Start(ctx, config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		a.flags.Server, a.flags.Connection = srv.URL(), natsconn.Options{}
	}
	report, err := bench.Run(ctx, &c.Config, bench.Target{
		World: a.flags.World, Timeout: a.flags.Timeout, Dial: a.dial, DialStreams: a.dialStreams,
	})
	if err != nil {
		return err
	}
	return cmp.Or(a.print(report, "bench", report),
		failedIf(report.Wrong > 0, "wrong answers: %d", report.Wrong))
}

// Package tempserver starts servers in this process whose data is gone after their end.
package tempserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"worldengine/worldengine/internal/serve/server"
)

// Start starts a server with its own NATS and data, on a free port. It logs only to a logger of the
// configuration. end ends the server and removes its data, even after ctx is done.
func Start(ctx context.Context, config server.Config) (srv *server.Server, end func() error, err error) {
	config.Embedded.Listen = "127.0.0.1:0"
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Embedded.Data, err = os.MkdirTemp("", "worldengine-"); err == nil {
		srv, err = server.Start(ctx, config)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("a private server does not start: %w", err),
			os.RemoveAll(config.Embedded.Data))
	}
	return srv, func() error {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.DefaultDrainTimeout)
		defer cancel()
		return errors.Join(srv.Close(stop), os.RemoveAll(config.Embedded.Data))
	}, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/server"
	"worldengine/worldengine/storage"
)

// parseFreeDisk reads --min-free-disk: "auto", for which it returns 0, or a size.
func parseFreeDisk(text string) (int64, error) {
	if text == "auto" {
		return 0, nil
	}
	if size := parseSize(text); size > 0 {
		return size, nil
	}
	return 0, fmt.Errorf("%w: --min-free-disk must be auto, or a size such as 512MiB or 2GiB, "+
		"not %q",
		errUsage, text)
}

// betweenLooks is the pause between two looks at a disk that is full.
const betweenLooks = 250 * time.Millisecond

// awaitFailure serves until ctx is done, and returns false, or until NATS has failed to write to
// the disk and there is room again, and returns true; meanwhile the server refuses to store. At
// SIGHUP it reads the access file anew, and it announces when the server begins to serve or stands
// by.
func (c *serveCommand) awaitFailure(
	ctx context.Context, out io.Writer, srv *server.Server, config *server.Config,
	pauses *backoff.Backoff,
) bool {
	room := srv.Room()
	var failed <-chan struct{} // never, if the disk is another process's
	if room != nil {
		failed = room.Failed()
	}
	for serving := true; serving; {
		select {
		case <-ctx.Done():
			return false
		case <-c.reload:
			c.reloadAccess(srv, config)
		case <-srv.Changed():
			c.announce(ctx, out, srv, *config)
		case <-failed:
			serving = false
		}
	}
	pause := pauses.Next()
	config.Logger.Error("a write to the disk failed, so nothing can be stored: the server starts "+
		"again when there is room",
		"data", config.Data, "error", room.Check(), "pause", pause)
	if backoff.Sleep(ctx, pause) != nil {
		return false
	}
	for room.Full() {
		if backoff.Sleep(ctx, betweenLooks) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// startAgain ends a server and starts another one in its place, on the same ports, once there is
// room. It returns nil if ctx is done before.
func (c *serveCommand) startAgain(
	ctx context.Context, srv *server.Server, config server.Config,
) (*server.Server, error) {
	var err, httpErr error
	config.Listen, err = samePort(config.Listen, srv.URL())
	if config.HTTP != "" {
		config.HTTP, httpErr = samePort(config.HTTP, srv.HTTP())
	}
	if err := errors.Join(err, httpErr); err != nil {
		return nil, errors.Join(err, c.stop(ctx, srv))
	}
	if err := c.stop(ctx, srv); err != nil {
		config.Logger.Warn("the server that could not store did not end in order", "error", err)
	}
	for {
		srv, err = server.Start(ctx, config)
		switch {
		case err == nil:
			config.Logger.Info("serving again", "url", srv.URL())
			return srv, nil
		case ctx.Err() != nil:
			return nil, nil
		case !errors.Is(err, storage.ErrFull):
			return nil, fmt.Errorf("the server cannot start again after a write to the disk "+
				"failed: %w", err)
		}
		_ = backoff.Sleep(ctx, betweenLooks) // the disk was filled again meanwhile
	}
}

// samePort returns the address to listen on with the port of the URL of a server that has listened
// on it.
func samePort(listen, served string) (string, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	at, err := url.Parse(served)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, at.Port()), nil
}

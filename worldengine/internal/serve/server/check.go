package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/streamdirs"
	"worldengine/worldengine/internal/store/worldsettings"
)

// Check returns how many towns the world files have, or the error that Start would return. It finds
// the errors that can be known without starting or connecting anything. It leaves nothing behind.
func Check(config Config) (towns int, err error) {
	s := newServer(config)
	if err := s.config.check(); err != nil {
		return 0, err
	}
	ctx := context.Background()
	if err := s.parts.Start(ctx, s.offline()...); err != nil {
		return 0, err
	}
	defer func() { _ = s.parts.Stop(ctx) }() // nothing has been posted
	if s.config.External.URL == "" {
		if err := checkDataDir(s.config.Embedded.Data); err != nil {
			return 0, err
		}
	}
	if err := s.makeWorlds(ctx); err != nil {
		return 0, err
	}
	return s.worlds.Check()
}

// CheckSettings compares the settings of a configuration with the stored settings of a world, and
// counts the messages that the new settings would discard. It opens the data directory of an
// existing world, or connects to the existing NATS; the error is ErrDataInUse if a server uses the
// directory, and commitlog.ErrFormat or ErrHalfRestored if no server may serve the world. It changes
// nothing in the world.
func CheckSettings(ctx context.Context, config Config, world string) (*worldsettings.Plan, error) {
	config = config.Alone(world).withDefaults()
	given, err := config.Engine.Settings.Normalized()
	if err != nil {
		return nil, err
	}
	if config.External.URL == "" {
		_, err := os.Stat(filepath.Join(config.Embedded.Data, "jetstream"))
		if errors.Is(err, os.ErrNotExist) {
			return &worldsettings.Plan{New: true, Settings: given.WithDefaults(worldsettings.Default())}, nil
		}
		data := streamdirs.Data{Dir: config.Embedded.Data, Logger: config.Logger}
		if err := data.RefuseRepair(world); err != nil {
			return nil, err
		}
	}
	nc, end, err := connectAlone(ctx, config, checking)
	if err != nil {
		return nil, err
	}
	defer end()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("server: JetStream: %w", err)
	}
	if err := commitlog.CheckRestored(ctx, js, config.Engine.World); err != nil {
		return nil, config.noStreamsError(err)
	}
	plan, err := worldsettings.MakePlan(ctx, js, config.Engine.World, given)
	return plan, config.noStreamsError(err)
}

// checkDataDir returns an error if a data directory cannot be written to, or is missing and cannot
// be made.
func checkDataDir(dir string) error {
	info, err := os.Stat(dir)
	for errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		info, err = os.Stat(dir)
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	if err != nil {
		return fmt.Errorf("server: data directory: %w", err)
	}
	probe, err := os.CreateTemp(dir, ".handoffd-check-")
	if err != nil {
		return fmt.Errorf("server: data directory: it cannot be written to: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

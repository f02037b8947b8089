package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"worldengine/worldengine"
	"worldengine/worldengine/rcon"
)

// Check says how many towns the world file has, and what would keep Start from succeeding, as far as
// that can be known without starting or connecting anything. It leaves nothing behind.
func Check(config Config) (towns int, err error) {
	config = config.withDefaults()
	if config.RCON != nil {
		console, err := rcon.New(*config.RCON)
		if err != nil {
			return 0, err
		}
		defer console.Close()
		config.Engine.RCON = console
	}
	if config.NATS == "" {
		if err := checkEmbedded(&config); err != nil {
			return 0, err
		}
	}
	file, err := config.worldFile()
	if err != nil {
		return 0, err
	}
	towns, err = worldengine.CheckConfig(config.Engine, file)
	return towns, config.inWorldFile(err)
}

func checkEmbedded(config *Config) error {
	if _, _, err := splitListen(config.Listen); err != nil {
		return err
	}
	if err := CheckListen(config); err != nil {
		return err
	}
	if _, err := accountsOf(config); err != nil {
		return err
	}
	return checkDataDir(config.Data)
}

// splitListen reads HOST:PORT.
func splitListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, fmt.Errorf("server: --listen must be HOST:PORT, not %q: %w", listen, err)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("server: --listen has the port %q, which is not a number up to 65535", text)
	}
	return host, int(number), nil
}

// checkDataDir says whether a data directory can be written to, or, where it is not there yet, made.
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

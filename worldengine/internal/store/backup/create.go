package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// Options configure a backup. The zero value of a member means its default, which is named in the
// member's comment.
type Options struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// OnProgress, unless nil, is called after each part of a stream, with the number of the stream's
	// bytes so far.
	OnProgress func(stream string, bytes int64)
}

// Create copies a world, which may be served meanwhile, to a directory that is missing or empty. The
// backup lacks messages that NATS cannot read: see Manifest.Unreadable. If Create fails, it removes its
// files.
func Create(
	ctx context.Context, nc *nats.Conn, dir string, options Options,
) (_ *Manifest, err error) {
	world := cmp.Or(options.World, wire.DefaultWorld)
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("backup: JetStream: %w", err)
	}
	log, err := commitlog.OpenReader(ctx, js, world)
	if err != nil {
		return nil, err
	}
	settings, err := worldsettings.Read(ctx, log)
	if errors.Is(err, worldsettings.ErrSettingsLost) { // the manifest says that the record is unreadable
		settings, err = worldsettings.ReadStreamConfig(log.Stream.CachedInfo().Config), nil
	}
	if err != nil {
		return nil, err
	}
	made, err := makeDirectory(dir)
	if err != nil {
		return nil, err
	}
	m := &Manifest{
		Format: formatPrefix + commitlog.Format, World: world, CreatedAt: time.Now().UTC(),
		Settings: settings.List(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.remove(dir))
			if made {
				err = errors.Join(err, os.Remove(dir))
			}
		}
	}()
	copied := &logCopy{log, map[string]uint64{}, map[string]uint64{}}
	for i, config := range BackupStreams(world, worldsettings.Settings{}, 1) {
		m.Streams = append(m.Streams, Stream{Name: config.Name})
		if err = m.Streams[i].copyTo(ctx, nc, dir, copied.visit, options.OnProgress); err == nil && i == 0 {
			err = m.checkLog(ctx, copied)
		}
		if err != nil {
			return nil, fmt.Errorf("backup: stream %s: %w", config.Name, err)
		}
	}
	if err := m.write(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return m, nil
}

// makeDirectory makes a directory that only its owner may read, or uses an empty one, and reports whether it was
// missing.
func makeDirectory(dir string) (made bool, err error) {
	_, err = os.Stat(dir)
	made = errors.Is(err, fs.ErrNotExist)
	err = os.MkdirAll(dir, 0o700)
	if err == nil {
		var entries []os.DirEntry
		if entries, err = os.ReadDir(dir); len(entries) > 0 {
			err = fmt.Errorf("%s is not empty", dir)
		}
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return made, nil
}

func (m *Manifest) remove(dir string) error {
	err := os.RemoveAll(filepath.Join(dir, ManifestFile))
	for _, s := range m.Streams {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, s.Name)))
	}
	return err
}

// copyTo copies one stream, and visits the messages of the copy.
func (s *Stream) copyTo(
	ctx context.Context, nc *nats.Conn, dir string, visit visitor, copying func(string, int64),
) error {
	if err := os.Mkdir(filepath.Join(dir, s.Name), 0o700); err != nil {
		return err
	}
	path := s.path(dir, dataFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	begun, err := copySnapshot(ctx, nc, s.Name, f, copying)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if s.Messages, err = readArchive(path, visit); err != nil {
		return err
	}
	if s.Data, err = digest(path); err != nil {
		return err
	}
	var at jetstream.StreamState
	if err := json.Unmarshal(begun.State, &at); err != nil {
		return err
	}
	s.FirstSeq, s.LastSeq, s.atStart = at.FirstSeq, at.LastSeq, at.Msgs
	meta, err := json.Marshal(begun)
	if err != nil {
		return err
	}
	path = s.path(dir, configFile)
	if err := platform.ReplaceFile(path, meta); err != nil {
		return err
	}
	s.Config, err = digest(path)
	return err
}

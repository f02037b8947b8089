package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// Options configure a backup. Zero values mean their documented defaults.
type Options struct {
	// World is the world's name; wire.DefaultWorld.
	World string
	// Now is the clock of the manifest; time.Now.
	Now func() time.Time
	// Copied, unless nil, is called after each stream, and Copying with each part of one and its
	// bytes so far.
	Copied  func(Stream)
	Copying func(stream string, bytes int64)
}

// Take copies a world, which may be served meanwhile, to a directory that is missing or empty.
// Messages that NATS cannot read are not in a backup: see Manifest.Unreadable. If it fails, it
// leaves nothing that Restore would accept.
func Take(
	ctx context.Context, nc *nats.Conn, dir string, options Options,
) (_ *Manifest, err error) {
	if options.World == "" {
		options.World = wire.DefaultWorld
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("backup: JetStream: %w", err)
	}
	log, err := commitlog.OpenLog(ctx, js, options.World)
	if err != nil {
		return nil, err
	}
	if err := makeDirectory(dir); err != nil {
		return nil, err
	}
	m := &Manifest{
		Format: formatPrefix + commitlog.Format, World: options.World, TakenAt: options.Now().UTC(),
		Settings: commitlog.SettingsOf(log.CachedInfo().Config.Metadata).List(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.remove(dir))
		}
	}()
	for _, config := range BackupStreams(options.World, commitlog.Settings{}, 1) {
		m.Streams = append(m.Streams, Stream{Name: config.Name})
		s := &m.Streams[len(m.Streams)-1]
		if s.Name == wire.LogStream(options.World) {
			err = m.takeLog(ctx, nc, log, dir, options.Copying)
		} else {
			err = s.take(ctx, nc, dir, nil, options.Copying)
		}
		if err != nil {
			return nil, fmt.Errorf("backup: stream %s: %w", s.Name, err)
		}
		if options.Copied != nil {
			options.Copied(*s)
		}
	}
	if err := m.write(dir); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return m, nil
}

// takeLog copies the log, and checks that the copy has every town. log has the state before the
// copy.
func (m *Manifest) takeLog(
	ctx context.Context, nc *nats.Conn, log jetstream.Stream, dir string,
	copying func(string, int64),
) error {
	found := &holes{world: m.World, histories: map[string]copied{}}
	s := &m.Streams[0]
	err := s.take(ctx, nc, dir, found.visit, copying)
	if err == nil {
		err = checkHistory(ctx, log, m.World)
	}
	if err == nil {
		m.Left, err = found.left(ctx, log)
	}
	if err == nil {
		m.Unreadable, err = found.unreadable(ctx, log, s.held)
	}
	return err
}

// makeDirectory makes a directory that only its owner may read: it will have all data of a world.
func makeDirectory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%w: %s is not empty", ErrDirectory, dir)
	}
	return nil
}

// remove removes the files of an unfinished backup.
func (m *Manifest) remove(dir string) error {
	errs := []error{os.RemoveAll(filepath.Join(dir, ManifestFile+".part"))}
	for _, s := range m.Streams {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, s.Name)))
	}
	return errors.Join(errs...)
}

// take copies one stream. visit, unless nil, gets the messages of the copy.
func (s *Stream) take(
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
	begun, err := takeSnapshot(ctx, nc, s.Name, f, copying)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if s.Messages, err = readArchive(path, visit); err != nil {
		return err
	}
	if s.Data, err = digest(path); err != nil {
		return err
	}
	var at state
	if err := json.Unmarshal(begun.State, &at); err != nil {
		return err
	}
	s.FirstSeq, s.LastSeq, s.held = at.FirstSeq, at.LastSeq, at.Messages
	meta, err := json.Marshal(begun)
	if err != nil {
		return err
	}
	if err := writeFile(s.path(dir, configFile), meta); err != nil {
		return err
	}
	if s.Config, err = digest(s.path(dir, configFile)); err != nil {
		return err
	}
	return syncPath(filepath.Join(dir, s.Name))
}

// checkHistory returns ErrOutrun if a town may have lost its last message to the bound of its
// history during the backup: its state could be missing then, or an older one in its place. log has
// the log's state at the start. If the log did not grow by a whole history, every town's last
// message is there; older ones may have left between two that are: see holes.
func checkHistory(ctx context.Context, log jetstream.Stream, world string) error {
	begin := log.CachedInfo().State.LastSeq
	info, err := log.Info(ctx)
	if err != nil {
		return fmt.Errorf("state of the log: %w", err)
	}
	history := info.Config.MaxMsgsPerSubject
	if history <= 0 || info.State.LastSeq-begin < uint64(history) {
		return nil
	}
	commits := map[string]int64{}
	return commitlog.Each(ctx, log, begin, func(msg *jetstream.RawStreamMsg) error {
		if !commitlog.IsHistory(world, msg.Subject) {
			return nil
		}
		if commits[msg.Subject]++; commits[msg.Subject] >= history {
			return fmt.Errorf("%w: %s got %d commits meanwhile, and so many are kept "+
				"(--history-per-town)", ErrOutrun, msg.Subject, history)
		}
		return nil
	})
}

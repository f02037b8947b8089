package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// clusterTimeout bounds the wait until all servers of a cluster have a restored stream.
const clusterTimeout = 10 * time.Minute

// RestoreOptions configure a restore. The zero value of a member means its default, which is named
// in the member's comment.
type RestoreOptions struct {
	// World is the name of the world in the backup; wire.DefaultWorld. A backup of another world is
	// refused.
	World string
	// As is the name of the restored world; World. Events and alerts from before keep their projectId.
	As string
	// Replicas is the number of servers that keep each restored stream; 1.
	Replicas int
	// Sync, unless nil, is called when the mark of the restore is made, and before it is removed. When
	// it returns, all that NATS has stored MUST be on the disk.
	Sync func() error
	// OnStream, unless nil, is called after each stream.
	OnStream func(Stream)
}

// RestoreResult is the outcome of a restore.
type RestoreResult struct {
	Manifest *Manifest
	// Pending counts the towns with a pending command. The first server of the world goes on to
	// apply it.
	Pending int
}

// ReadWorld is Read for a backup that has to be of a world; "" is wire.DefaultWorld.
func ReadWorld(dir, world string) (*Manifest, error) {
	m, err := Read(dir)
	if err != nil {
		return nil, err
	}
	if world = cmp.Or(world, wire.DefaultWorld); m.World != world {
		return nil, fmt.Errorf("%w: of %q, and not of %q", ErrOtherWorld, m.World, world)
	}
	return m, nil
}

// Restore restores the world of a manifest that ReadWorld has read in dir, before any server serves the world. It
// changes nothing if the world exists. While a restore is not finished, a stream that marks it makes servers refuse
// the world. If an earlier restore did not finish, Restore first removes its streams.
func (m *Manifest) Restore(
	ctx context.Context, nc *nats.Conn, dir string, options RestoreOptions,
) (*RestoreResult, error) {
	options.Replicas, options.As = max(options.Replicas, 1), cmp.Or(options.As, m.World)
	if options.Sync == nil {
		options.Sync = func() error { return nil }
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("backup: JetStream: %w", err)
	}
	r := &restore{nc: nc, js: js, dir: dir, manifest: m, options: options,
		mark: commitlog.RestoreMarkConfig(options.As, options.Replicas)}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	pending, err := r.restoreStreams(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRestore, err)
	}
	return &RestoreResult{Manifest: m, Pending: pending}, nil
}

type restore struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	dir      string
	manifest *Manifest
	options  RestoreOptions
	mark     jetstream.StreamConfig
}

// prepare makes the mark of a restore, and removes the streams of an earlier restore that did not finish. It returns
// an error if the world exists. The mark MUST be on the disk before the first stream is made: no server serves a
// world with a mark, so none ever serves half a world.
func (r *restore) prepare(ctx context.Context) error {
	if err := r.requireUnserved(ctx); err != nil {
		return err
	}
	again, err := r.exists(ctx, r.mark.Name)
	if err != nil {
		return err
	}
	for _, name := range layout.Streams(r.options.As) {
		there, err := r.exists(ctx, name)
		switch {
		case err != nil:
			return err
		case there && !again:
			return fmt.Errorf("%w: there is a stream %s; nothing was changed: %s", ErrWorldExists,
				name, existsAdvice)
		case there:
			if err := r.js.DeleteStream(ctx, name); err != nil {
				return fmt.Errorf("backup: the stream %s of an unfinished restore cannot be "+
					"removed: %w", name, err)
			}
		}
	}
	if !again {
		err = r.await(ctx, func() error {
			_, err := r.js.CreateStream(ctx, r.mark)
			return err
		})
	}
	if err == nil {
		err = r.options.Sync()
	}
	if err != nil {
		return fmt.Errorf("backup: the mark of a restore cannot be made: %w", err)
	}
	return nil
}

// existsAdvice is the advice if the world exists.
const existsAdvice = "restore it under another name (--as), into an empty data directory or another " +
	"NATS, or first end the world's servers and take its streams away"

func (r *restore) requireUnserved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := r.nc.RequestWithContext(ctx, wire.Subject(r.options.As, wire.TownList), nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil
	case err == nil:
		return fmt.Errorf("%w: a server serves %q; nothing was changed: %s", ErrWorldExists,
			r.options.As, existsAdvice)
	}
	return fmt.Errorf("backup: it is unknown if a server serves %q: %w", r.options.As,
		cmp.Or(r.nc.LastError(), err))
}

func (r *restore) exists(ctx context.Context, stream string) (bool, error) {
	_, err := r.js.Stream(ctx, stream)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("backup: stream %s: %w", stream, err)
	}
	return err == nil, nil
}

// restoreStreams restores the streams, and returns the number of towns with a pending command. It removes the
// mark last: until then a crash leaves a world that no server serves, and that the next restore replaces.
func (r *restore) restoreStreams(ctx context.Context) (pending int, err error) {
	streams := r.manifest.Streams
	var log jetstream.StreamConfig // as it was copied; only its metadata and history count
	begun, err := streams[0].read(r.dir)
	if err == nil {
		err = json.Unmarshal(begun.Config, &log)
	}
	if err != nil {
		return 0, err
	}
	settings := worldsettings.ReadStreamConfig(log) // until the log itself can be asked
	configs := BackupStreams(r.options.As, settings.Settings, r.options.Replicas)
	settings.Configure(&configs[0])
	commitlog.Identify(&configs[0], r.options.As, nuid.Next())
	for i, config := range configs {
		config.DenyPurge = config.DenyPurge && len(r.manifest.Dropped) == 0
		if err := r.stream(ctx, &streams[i], config); err != nil {
			return 0, fmt.Errorf("stream %s: %w", config.Name, err)
		}
		if r.options.OnStream != nil {
			r.options.OnStream(streams[i])
		}
	}
	for _, config := range configs {
		if err := r.await(ctx, func() error { return r.replicated(ctx, config.Name) }); err != nil {
			return 0, err
		}
	}
	err = r.await(ctx, func() error {
		log, err := r.js.Stream(ctx, configs[0].Name)
		if err == nil {
			err = r.removeDropped(ctx, log, configs[0])
		}
		if err == nil {
			pending, err = countPending(ctx, log, r.options.As)
		}
		if err == nil {
			err = worldsettings.MarkRestored(ctx, r.js, r.options.As, settings.Settings,
				streams[0].LastSeq)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := r.options.Sync(); err != nil {
		return 0, err
	}
	return pending, r.js.DeleteStream(ctx, r.mark.Name)
}

func (r *restore) stream(ctx context.Context, s *Stream, config jetstream.StreamConfig) error {
	begun, err := s.read(r.dir)
	if err != nil {
		return err
	}
	f, err := os.Open(s.path(r.dir, dataFile))
	if err != nil {
		return err
	}
	defer f.Close()
	data := r.renamed(f)
	defer data.Close()
	restored, err := restoreSnapshot(ctx, r.nc, &config, begun.State, data)
	if err != nil {
		return err
	}
	return r.compare(s, config.MaxAge, &restored)
}

// compare requires that a restored stream has the manifest's messages, except those that may have
// expired since the backup.
func (r *restore) compare(
	s *Stream, maxAge time.Duration, restored *jetstream.StreamState,
) error {
	least := s.Messages
	if restored.Msgs < s.Messages {
		oldest := time.Now().Add(-maxAge).UnixNano()
		_, err := readArchive(s.path(r.dir, dataFile),
			func(entry *archive.Header, content io.Reader) error {
				data, err := io.ReadAll(io.LimitReader(content, entry.HeaderSize))
				if maxAge > 0 && entry.Timestamp < oldest ||
					bytes.Contains(data, []byte("\n"+jetstream.MsgTTLHeader+":")) {
					least--
				}
				return err
			})
		if err != nil {
			return err
		}
	}
	if restored.LastSeq != s.LastSeq || restored.Msgs < least || restored.Msgs > s.Messages {
		return fmt.Errorf("the manifest names %d messages up to sequence %d, and %d up to %d were "+
			"restored: restore another backup", s.Messages, s.LastSeq, restored.Msgs,
			restored.LastSeq)
	}
	return nil
}

// removeDropped removes the messages that the log dropped during the copy, and then makes the restored log
// deny removals. It may be called again after an error.
func (r *restore) removeDropped(
	ctx context.Context, log jetstream.Stream, config jetstream.StreamConfig,
) error {
	if len(r.manifest.Dropped) == 0 || log.CachedInfo().Config.DenyPurge {
		return nil
	}
	for _, left := range r.manifest.Dropped {
		subject, err := layout.RenameStored(left.Subject, r.manifest.World, r.options.As)
		if err != nil {
			return err
		}
		err = log.Purge(ctx, jetstream.WithPurgeSubject(subject),
			jetstream.WithPurgeSequence(left.Before))
		if err != nil {
			return fmt.Errorf("stream %s: %s before sequence %d cannot be removed: %w",
				config.Name, left.Subject, left.Before, err)
		}
	}
	if _, err := r.js.UpdateStream(ctx, config); err != nil {
		return fmt.Errorf("stream %s: %w", config.Name, err)
	}
	return nil
}

// countPending counts the towns of a log that have a pending command.
func countPending(ctx context.Context, log jetstream.Stream, world string) (n int, err error) {
	err = commitlog.ScanLast(ctx, log, []string{layout.LogSubject(world, "*")},
		func(msg *jetstream.RawStreamMsg) error {
			if msg.Header.Get(layout.PendingHeader) != "" {
				n++
			}
			return nil
		})
	return n, err
}

// await calls try until it succeeds in a cluster, in which a new stream may have no leader yet.
// Outside a cluster it calls try once.
func (r *restore) await(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for {
		err := try()
		if err == nil || r.options.Replicas <= 1 || backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// replicated returns nil when every replica has the whole stream.
func (r *restore) replicated(ctx context.Context, name string) error {
	stream, err := r.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	if r.options.Replicas <= 1 {
		return nil
	}
	cluster := stream.CachedInfo().Cluster
	if cluster == nil || cluster.Leader == "" || len(cluster.Replicas) < r.options.Replicas-1 {
		return fmt.Errorf("stream %s is not on %d servers", name, r.options.Replicas)
	}
	for _, peer := range cluster.Replicas {
		if !peer.Current || peer.Offline {
			return fmt.Errorf("stream %s is not complete on %s", name, peer.Name)
		}
	}
	return nil
}

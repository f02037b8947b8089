package backup

import (
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

	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// clusterTimeout bounds the time until a cluster's servers have a restored stream.
const clusterTimeout = 10 * time.Minute

// RestoreOptions configure a restore. Zero values mean their documented defaults.
type RestoreOptions struct {
	// World is the world's name; wire.DefaultWorld. A backup of another one is refused: its
	// messages contain the name.
	World string
	// Replicas is the new number of servers that keep each stream, whatever it was before; 1.
	Replicas int
	// Restored, unless nil, is called after each stream.
	Restored func(Stream)
}

// Restored is the outcome of a restore.
type Restored struct {
	Manifest *Manifest
	// Pending counts the towns with a command that is being applied; a server goes on with them.
	Pending int
}

// Restore restores a world from a backup, before any server serves it. It changes nothing until the
// whole backup was read and found unaltered, nor if the world exists. Until the restore has
// finished, servers refuse the world by a mark; a repeated restore first removes the earlier one's
// streams.
func Restore(
	ctx context.Context, nc *nats.Conn, dir string, options RestoreOptions,
) (*Restored, error) {
	if options.World == "" {
		options.World = wire.DefaultWorld
	}
	options.Replicas = max(options.Replicas, 1)
	m, err := Read(dir)
	if err != nil {
		return nil, err
	}
	if m.World != options.World {
		return nil, fmt.Errorf("%w: of %q, and not of %q", ErrOtherWorld, m.World, options.World)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("backup: JetStream: %w", err)
	}
	r := &restore{nc: nc, js: js, dir: dir, manifest: m, options: options}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	pending, err := r.all(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRestore, err)
	}
	return &Restored{Manifest: m, Pending: pending}, nil
}

type restore struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	dir      string
	manifest *Manifest
	options  RestoreOptions
}

// begin leaves the mark of a restore unless the world exists, and removes the streams of an
// unfinished one.
func (r *restore) begin(ctx context.Context) error {
	if err := r.requireUnserved(ctx); err != nil {
		return err
	}
	again, err := r.exists(ctx, r.mark().Name)
	if err != nil {
		return err
	}
	for _, name := range wire.Streams(r.manifest.World) {
		there, err := r.exists(ctx, name)
		switch {
		case err != nil:
			return err
		case there && !again:
			return fmt.Errorf("%w: the stream %s is there; nothing was changed: %s", ErrWorldExists,
				name, elsewhere)
		case there:
			if err := r.js.DeleteStream(ctx, name); err != nil {
				return fmt.Errorf("backup: what an earlier restore has made: stream %s: %w", name,
					err)
			}
		}
	}
	if again {
		return nil
	}
	err = r.await(ctx, func() error {
		_, err := r.js.CreateStream(ctx, r.mark())
		return err
	})
	if err != nil {
		return fmt.Errorf("backup: the mark of a restore: %w", err)
	}
	return nil
}

// elsewhere is the advice if the world is there.
const elsewhere = "restore into an empty data directory or another NATS, or first end the " +
	"world's servers and take its streams away"

func (r *restore) requireUnserved(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := r.nc.RequestWithContext(ctx, wire.Subject(r.manifest.World, wire.TownList), nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil
	case err == nil:
		return fmt.Errorf("%w: a server serves %q; nothing was changed: %s", ErrWorldExists,
			r.manifest.World, elsewhere)
	}
	return fmt.Errorf("backup: whether a server serves %q: %w", r.manifest.World,
		cmp.Or(r.nc.LastError(), err))
}

func (r *restore) mark() jetstream.StreamConfig {
	return commitlog.RestoringConfig(r.manifest.World, r.options.Replicas)
}

func (r *restore) exists(ctx context.Context, stream string) (bool, error) {
	_, err := r.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("backup: stream %s: %w", stream, err)
	}
	return true, nil
}

// all restores the streams, and removes the mark when they are complete.
func (r *restore) all(ctx context.Context) (pending int, err error) {
	snapshots := make([]snapshot, len(r.manifest.Streams))
	for i := range snapshots {
		data, err := os.ReadFile(r.manifest.Streams[i].path(r.dir, configFile))
		if err != nil {
			return 0, err
		}
		if err := json.Unmarshal(data, &snapshots[i]); err != nil {
			return 0, err
		}
	}
	configs, err := r.configs(&snapshots[0])
	if err != nil {
		return 0, err
	}
	commitlog.MarkRestored(&configs[0], r.manifest.Streams[0].LastSeq)
	for i := range configs {
		s := &r.manifest.Streams[i]
		if err := r.stream(ctx, s, &configs[i], &snapshots[i]); err != nil {
			return 0, fmt.Errorf("stream %s: %w", s.Name, err)
		}
		if r.options.Restored != nil {
			r.options.Restored(*s)
		}
	}
	for _, config := range configs {
		if err := r.await(ctx, func() error { return r.replicated(ctx, config.Name) }); err != nil {
			return 0, err
		}
	}
	if err := r.cut(ctx, configs[0]); err != nil {
		return 0, err
	}
	err = r.await(ctx, func() (err error) {
		log, err := r.js.Stream(ctx, wire.LogStream(r.manifest.World))
		if err == nil {
			pending, err = CountPending(ctx, log, r.manifest.World)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return pending, r.js.DeleteStream(ctx, r.mark().Name)
}

// configs are the streams as a server of the world creates them with so many replicas, by the
// settings in its log's metadata.
func (r *restore) configs(log *snapshot) ([]jetstream.StreamConfig, error) {
	var made struct {
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(log.Config, &made); err != nil {
		return nil, err
	}
	return BackupStreams(r.manifest.World, commitlog.SettingsOf(made.Metadata),
		r.options.Replicas), nil
}

func (r *restore) stream(
	ctx context.Context, s *Stream, config *jetstream.StreamConfig, begun *snapshot,
) error {
	f, err := os.Open(s.path(r.dir, dataFile))
	if err != nil {
		return err
	}
	defer f.Close()
	made := *config
	made.DenyPurge = config.DenyPurge && len(r.manifest.Left) == 0
	restored, err := restoreSnapshot(ctx, r.nc, &made, begun, f)
	if err != nil {
		return err
	}
	return r.compare(s, config.MaxAge, restored)
}

// compare requires that a restored stream has the manifest's messages, except those that have
// expired since.
func (r *restore) compare(s *Stream, maxAge time.Duration, restored *state) error {
	least := s.Messages
	if maxAge > 0 && restored.Messages < s.Messages {
		oldest := time.Now().Add(-maxAge).UnixNano()
		_, err := readArchive(s.path(r.dir, dataFile),
			func(entry *archive.Header, _ io.Reader) error {
				if entry.Timestamp < oldest {
					least--
				}
				return nil
			})
		if err != nil {
			return err
		}
	}
	if restored.LastSeq != s.LastSeq || restored.Messages < least || restored.Messages > s.Messages {
		return fmt.Errorf("the manifest names %d messages up to sequence %d, and %d up to %d were "+
			"restored: restore another backup", s.Messages, s.LastSeq, restored.Messages,
			restored.LastSeq)
	}
	return nil
}

// cut removes from the log the messages that left their histories during the copy; the log then
// denies removals.
func (r *restore) cut(ctx context.Context, config jetstream.StreamConfig) error {
	if len(r.manifest.Left) == 0 {
		return nil
	}
	for _, left := range r.manifest.Left {
		err := r.await(ctx, func() error {
			log, err := r.js.Stream(ctx, config.Name)
			if err != nil {
				return err
			}
			return log.Purge(ctx, jetstream.WithPurgeSubject(left.Subject),
				jetstream.WithPurgeSequence(left.Before))
		})
		if err != nil {
			return fmt.Errorf("stream %s: what left %s before %d: %w", config.Name,
				left.Subject, left.Before, err)
		}
	}
	return r.await(ctx, func() error {
		if _, err := r.js.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("stream %s: %w", config.Name, err)
		}
		return nil
	})
}

// await retries until try works. In a cluster a new stream may have no leader for a moment.
func (r *restore) await(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for {
		err := try()
		if err == nil || r.options.Replicas <= 1 {
			return err
		}
		if backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

// replicated returns nil when all servers that keep a stream have all of it.
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

// Package streamdirs looks after the directories of streams in the data directory of an embedded NATS. It
// repairs them after a kill or a loss of power, puts back files that NATS (2.15) removes, and syncs files
// that NATS does not sync. NATS MUST NOT have a stream open that is repaired or put back.
package streamdirs

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/internal/kit/layout"
)

// ErrLost: NATS cannot read the directory of a stream, so the stream seems to be missing. A new stream
// must not take its place.
var ErrLost = errors.New("streamdirs: a stream of the world is damaged on the disk")

// Data is the data directory of an embedded NATS.
type Data struct {
	Dir    string
	Logger *slog.Logger // for operators
}

// Dir is the directory of a stream.
type Dir struct{ name, path string }

// bucketPrefix is the prefix of the name of the stream of a key-value bucket: of the writer's lease, which is
// worth nothing after its server.
const bucketPrefix = "KV_"

// LeaseStream returns the name of the stream of the lease of a world's writer.
func LeaseStream(world string) string { return bucketPrefix + layout.WriterBucket(world) }

// StreamNames returns the names of all streams that a world may have, the mark of an unfinished restore first.
func StreamNames(world string) []string {
	return slices.Concat([]string{layout.RestoringStream(world)}, layout.Streams(world),
		[]string{LeaseStream(world)})
}

// streamPath returns the path of the directory of a stream, from the data directory.
func streamPath(name string) string {
	return filepath.Join(natsserver.JetStreamStoreDir, natsserver.DEFAULT_GLOBAL_ACCOUNT, "streams",
		name)
}

// Worlds returns the worlds in the data directory, in their order, also a world of which an interrupted
// restore has left nothing but its mark.
func (d Data) Worlds() (worlds []string, err error) {
	streams, err := os.ReadDir(filepath.Join(d.Dir, streamPath("")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("streamdirs: streams of the data directory: %w", err)
	}
	for _, stream := range streams {
		for _, named := range []func(string) (string, bool){layout.LogWorld, layout.RestoringWorld} {
			if world, ok := named(stream.Name()); ok {
				worlds = append(worlds, world)
			}
		}
	}
	slices.Sort(worlds)
	return slices.Compact(worlds), nil
}

// existing returns the directories of a world's streams that exist, the mark of an unfinished restore
// first.
func (d Data) existing(world string) (dirs []Dir) {
	for _, name := range StreamNames(world) {
		path := filepath.Join(d.Dir, streamPath(name))
		_, err := os.Stat(path)
		// If a file is in the place of a directory, NATS says so when it starts.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			dirs = append(dirs, Dir{name, path})
		}
	}
	return dirs
}

// Needed returns the directories of streams that NATS must load: while a restore is unfinished, its mark
// alone. No server serves the world then, and the restore, run again, removes the others.
func (d Data) Needed(world string) []Dir {
	dirs := d.existing(world)
	if len(dirs) > 0 && dirs[0].name == layout.RestoringStream(world) {
		return dirs[:1]
	}
	return dirs
}

// Missing returns the names of the directories that NATS has not loaded, and an ErrLost if there are any.
func Missing(loaded map[string]bool, dirs []Dir) (names []string, err error) {
	for _, d := range dirs {
		if loaded[d.name] {
			continue
		}
		if names = append(names, d.name); err == nil {
			err = fmt.Errorf("%w: NATS does not load the directory %s; its warnings say why. Put "+
				"the directory back from a copy, or move it away and restore a backup", ErrLost, d.path)
		}
	}
	return names, err
}

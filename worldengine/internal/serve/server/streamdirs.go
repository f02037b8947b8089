package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/minio/highwayhash"
	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
)

// ErrStreamLost: NATS cannot read the directory of a stream, so the stream seems to be missing. A new
// stream must not take its place.
var ErrStreamLost = errors.New("server: a stream of the world is damaged on the disk")

// streamDir is the directory of a stream in the data directory of the embedded NATS.
type streamDir struct {
	name, path string
	logger     *slog.Logger
}

// bucketPrefix is the prefix of the name of the stream of a key-value bucket: of the writer's lease, which is
// worth nothing after its server.
const bucketPrefix = "KV_"

// storedWorlds returns the worlds in a data directory, also if an interrupted restore has
// left nothing but its mark, and the worlds that the configuration names.
func storedWorlds(config *Config) (worlds []string, err error) {
	streams, err := os.ReadDir(filepath.Join(config.Data, streamPath("")))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("server: streams of the data directory: %w", err)
	}
	worlds = slices.Clone(config.Worlds)
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

// streamsOf returns the names of all streams that a world may have, the mark of an unfinished restore
// first.
func streamsOf(world string) []string {
	return slices.Concat([]string{layout.RestoringStream(world)}, layout.Streams(world),
		[]string{bucketPrefix + layout.WriterBucket(world)})
}

// streamDirs returns the directories of a world's streams that exist, the mark of an unfinished
// restore first.
func streamDirs(config *Config, world string) (dirs []streamDir) {
	for _, name := range streamsOf(world) {
		path := filepath.Join(config.Data, streamPath(name))
		_, err := os.Stat(path)
		// If a file is in the place of a directory, NATS says so when it starts.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			dirs = append(dirs, streamDir{name, path, config.Logger})
		}
	}
	return dirs
}

// streamPath returns the path of the directory of a stream, from the data directory.
func streamPath(name string) string {
	return filepath.Join(natsserver.JetStreamStoreDir, natsserver.DEFAULT_GLOBAL_ACCOUNT, "streams",
		name)
}

// repairStreams mends the directories of a world's streams that NATS would skip with nothing but a
// warning. It must be called before NATS starts.
func repairStreams(config *Config, world string) error {
	for _, d := range streamDirs(config, world) {
		if err := d.repair(); err != nil {
			return fmt.Errorf("server: stream directory %s: %w", d.path, err)
		}
	}
	return nil
}

// refuseRepair returns an error if repairStreams would change something: a check must not.
func refuseRepair(config *Config, world string) error {
	for _, d := range streamDirs(config, world) {
		_, wanted, err := d.inspect()
		if err == nil && wanted != intact {
			err = fmt.Errorf("a kill or a loss of power has damaged it, and it %s when the server starts", wanted)
		}
		if err != nil {
			return fmt.Errorf("server: stream directory %s: %w", d.path, err)
		}
	}
	return nil
}

// repair is the change that NATS needs to read a directory.
type repair string

const (
	intact    repair = ""
	newSum    repair = "gets a new checksum"
	newConfig repair = "gets a new configuration"
	removal   repair = "is removed, since it has nothing that counts,"
)

// inspect returns the configuration in a directory, and the mending that it needs.
func (d streamDir) inspect() (config []byte, wanted repair, err error) {
	config, err = os.ReadFile(filepath.Join(d.path, natsserver.JetStreamMetaFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, intact, err
	}
	var info natsserver.FileStreamInfo
	whole := json.Unmarshal(config, &info) == nil && info.Name == d.name
	stored, err := d.storedBytes()
	switch lease := strings.HasPrefix(d.name, bucketPrefix); {
	case err != nil:
		return nil, intact, err
	case whole:
		wanted, err = d.inspectSum(config)
		return config, wanted, err
	case stored == 0 || lease:
		return config, removal, nil
	}
	return config, newConfig, nil
}

// repair makes NATS read the directory. The configuration of a stream follows from other things, so it
// can be made anew: the log's from the settings in the log, and the others' from the program.
func (d streamDir) repair() error {
	config, wanted, err := d.inspect()
	if err != nil {
		return err
	}
	switch wanted {
	case newSum:
		d.logger.Warn("the configuration of a stream has another checksum than its file says, as after a "+
			"kill or a loss of power amid a change: the checksum is mended", "file", d.sumFile())
		return d.writeSum(config)
	case newConfig:
		return d.repairConfig(config)
	case removal:
		d.logger.Warn("the directory of a stream has no configuration, and nothing in it that counts, "+
			"as after a kill while NATS made or removed the stream: it is removed", "directory", d.path)
		return os.RemoveAll(d.path)
	}
	return nil
}

// storedBytes returns the size of the files that have the messages of the stream.
func (d streamDir) storedBytes() (n int64, err error) {
	blocks, err := filepath.Glob(filepath.Join(d.path, "msgs", "*.blk"))
	for _, block := range blocks {
		info, statErr := os.Stat(block)
		if statErr != nil {
			return 0, statErr
		}
		n += info.Size()
	}
	return n, err
}

// inspectSum returns whether NATS would find the right checksum of a configuration.
func (d streamDir) inspectSum(config []byte) (repair, error) {
	sum, err := d.checksum(config)
	if err != nil {
		return intact, err
	}
	if found, err := os.ReadFile(d.sumFile()); err == nil && bytes.Equal(found, sum) {
		return intact, nil
	}
	return newSum, nil
}

func (d streamDir) sumFile() string { return filepath.Join(d.path, natsserver.JetStreamMetaFileSum) }

// writeSum writes the checksum of a configuration.
func (d streamDir) writeSum(config []byte) error {
	sum, err := d.checksum(config)
	if err != nil {
		return err
	}
	return platform.ReplaceFile(d.sumFile(), sum)
}

// checksum returns the checksum of a configuration as NATS writes it: the 64-bit HighwayHash in hex,
// with the SHA-256 of the stream's name as its key.
func (d streamDir) checksum(config []byte) ([]byte, error) {
	key := sha256.Sum256([]byte(d.name))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return nil, err
	}
	_, _ = hash.Write(config)
	return []byte(hex.EncodeToString(hash.Sum(nil))), nil
}

// repairConfig replaces a lost configuration by one that discards nothing. The engine then updates it.
func (d streamDir) repairConfig(lost []byte) error {
	path := filepath.Join(d.path, natsserver.JetStreamMetaFile)
	if len(lost) > 0 {
		if err := platform.ReplaceFile(path+".damaged", lost); err != nil {
			return err
		}
	}
	config, err := json.Marshal(natsserver.FileStreamInfo{
		Created: time.Now().UTC(),
		StreamConfig: natsserver.StreamConfig{
			Name: d.name, Subjects: []string{"lost." + d.name}, Storage: natsserver.FileStorage,
			Replicas: 1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1, MaxConsumers: -1,
			Metadata: map[string]string{
				worldsettings.ConfigLost: "true", commitlog.FormatKey: commitlog.Format,
			},
		},
	})
	if err != nil {
		return err
	}
	d.logger.Error("the configuration of a stream is lost, as after a loss of power: its messages are "+
		"kept, and it gets a new configuration", "file", path)
	if err := platform.ReplaceFile(path, config); err != nil {
		return err
	}
	return d.writeSum(config)
}

// neededDirs returns the directories of streams that NATS must load: while a restore is unfinished,
// its mark alone. No server serves the world then, and the restore, run again, removes the others.
func neededDirs(config *Config, world string) []streamDir {
	dirs := streamDirs(config, world)
	if len(dirs) > 0 && dirs[0].name == layout.RestoringStream(world) {
		return dirs[:1]
	}
	return dirs
}

// loadedStreams returns the names of the streams that NATS has loaded.
func loadedStreams(ns *natsserver.Server) (map[string]bool, error) {
	detail, err := ns.JszAccount(&natsserver.JSzOptions{
		Account: natsserver.DEFAULT_GLOBAL_ACCOUNT, Streams: true,
	})
	if err != nil {
		return nil, fmt.Errorf("server: streams of the embedded NATS: %w", err)
	}
	loaded := map[string]bool{}
	for i := range detail.Streams {
		loaded[detail.Streams[i].Name] = true
	}
	return loaded, nil
}

// requireStreams returns ErrStreamLost if NATS has not loaded one of the directories.
func requireStreams(loaded map[string]bool, dirs []streamDir) error {
	for _, d := range dirs {
		if !loaded[d.name] {
			return fmt.Errorf("%w: NATS does not load the directory %s; its warnings say why. Put "+
				"the directory back from a copy, or move it away and restore a backup", ErrStreamLost,
				d.path)
		}
	}
	return nil
}

package streamdirs

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
	"strings"
	"time"

	"github.com/minio/highwayhash"
	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
)

// repairWorld repairs the directories of a world's streams that NATS would skip with nothing but a warning.
func (d Data) repairWorld(world string) error {
	for _, dir := range d.existing(world) {
		if err := dir.repair(d.Logger); err != nil {
			return dir.failed(err)
		}
	}
	return nil
}

// RefuseRepair returns an error if a start would change the directories of a world's streams: a check must
// not.
func (d Data) RefuseRepair(world string) error {
	for _, dir := range d.existing(world) {
		_, wanted, err := dir.inspect()
		if err == nil && wanted != intact {
			err = fmt.Errorf("a kill or a loss of power has damaged it, and it %s when the server starts", wanted)
		}
		if err != nil {
			return dir.failed(err)
		}
	}
	return nil
}

func (d Dir) failed(err error) error {
	return fmt.Errorf("streamdirs: stream directory %s: %w", d.path, err)
}

// repair is the change that NATS needs to read a directory.
type repair string

const (
	intact    repair = ""
	newSum    repair = "gets a new checksum"
	newConfig repair = "gets a new configuration"
	removal   repair = "is removed, since it has nothing that counts,"
)

// inspect returns the configuration in a directory, and the repair that it needs.
func (d Dir) inspect() (config []byte, wanted repair, err error) {
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
func (d Dir) repair(logger *slog.Logger) error {
	config, wanted, err := d.inspect()
	if err != nil {
		return err
	}
	switch wanted {
	case newSum:
		logger.Warn("the configuration of a stream has another checksum than its file says, as after a "+
			"kill or a loss of power amid a change: the checksum is repaired", "file", d.sumFile())
		return d.writeSum(config)
	case newConfig:
		return d.repairConfig(config, logger)
	case removal:
		logger.Warn("the directory of a stream has no configuration, and nothing in it that counts, "+
			"as after a kill while NATS made or removed the stream: it is removed", "directory", d.path)
		return os.RemoveAll(d.path)
	}
	return nil
}

// storedBytes returns the size of the files that have the messages of the stream.
func (d Dir) storedBytes() (n int64, err error) {
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
func (d Dir) inspectSum(config []byte) (repair, error) {
	sum, err := d.checksum(config)
	if err != nil {
		return intact, err
	}
	if found, err := os.ReadFile(d.sumFile()); err == nil && bytes.Equal(found, sum) {
		return intact, nil
	}
	return newSum, nil
}

func (d Dir) sumFile() string { return filepath.Join(d.path, natsserver.JetStreamMetaFileSum) }

// writeSum writes the checksum of a configuration.
func (d Dir) writeSum(config []byte) error {
	sum, err := d.checksum(config)
	if err != nil {
		return err
	}
	return platform.ReplaceFile(d.sumFile(), sum)
}

// checksum returns the checksum of a configuration as NATS writes it: the 64-bit HighwayHash in hex,
// with the SHA-256 of the stream's name as its key.
func (d Dir) checksum(config []byte) ([]byte, error) {
	key := sha256.Sum256([]byte(d.name))
	hash, err := highwayhash.New64(key[:])
	if err != nil {
		return nil, err
	}
	_, _ = hash.Write(config)
	return []byte(hex.EncodeToString(hash.Sum(nil))), nil
}

// repairConfig replaces a lost configuration by one that discards nothing. The engine then updates it.
func (d Dir) repairConfig(lost []byte, logger *slog.Logger) error {
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
	logger.Error("the configuration of a stream is lost, as after a loss of power: its messages are "+
		"kept, and it gets a new configuration", "file", path)
	if err := platform.ReplaceFile(path, config); err != nil {
		return err
	}
	return d.writeSum(config)
}

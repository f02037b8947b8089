package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/wire"
)

// formatPrefix and commitlog.Format make up the format of a manifest.
const formatPrefix = "worldengine-backup.v"

// A directory is a backup if it has a ManifestFile. For each stream it has a configFile and a
// dataFile.
const (
	ManifestFile = "manifest.json"
	configFile   = "backup.json"
	dataFile     = "stream.arc.s2"
)

// Manifest lists a backup's contents.
type Manifest struct {
	Format string `json:"format"`
	World  string `json:"world"`
	// CreatedAt is the time at which the backup began. The backup has every answer from before that
	// time.
	CreatedAt time.Time `json:"takenAt"`
	// Settings are the world's settings, by the names of handoffd's flags.
	Settings []machine.Setting `json:"settings,omitzero"`
	// Streams are in the order in which they were copied, the log first.
	Streams []Stream `json:"streams"`
	// Unreadable names the histories whose last message NATS could not read: of towns, or of the
	// world's pauses. A restored world has the state before that message, or lacks the town.
	Unreadable []fsck.Unreadable `json:"unreadable,omitzero"`
	// Dropped has the messages that the log dropped during the copy.
	Dropped []DroppedMessages `json:"left,omitzero"`
}

// Stream is one stream of a backup.
type Stream struct {
	Name string `json:"name"`
	// FirstSeq and LastSeq are the stream's first and last sequence when the snapshot began.
	// Messages is the number of messages that were copied.
	FirstSeq uint64 `json:"firstSeq"`
	LastSeq  uint64 `json:"lastSeq"`
	Messages uint64 `json:"messages"`
	atStart  uint64 // the number of the stream's messages when the snapshot began
	// Config and Data are the stream's files.
	Config File `json:"config"`
	Data   File `json:"data"`
}

// File is one file of a backup.
type File struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // lower-case hex
}

// Read compares every file of a backup with its manifest, and returns the manifest. The error is
// commitlog.ErrFormat, or ErrInvalid, which names the missing or altered file.
func Read(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("%w: there is no directory %s", ErrInvalid, dir)
		}
		return nil, fmt.Errorf("%w: %s has no %s, which is written last: it was not finished",
			ErrInvalid, dir, ManifestFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	m := new(Manifest)
	err = json.Unmarshal(data, m)
	// A manifest of another format may not be readable, so its format is checked first.
	if format, found := strings.CutPrefix(m.Format, formatPrefix); found {
		if err := commitlog.CheckFormat(m.World, format); err != nil {
			return nil, err
		}
	}
	if err == nil {
		err = m.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	for i := range m.Streams {
		s := &m.Streams[i]
		if err := errors.Join(s.Config.verify(s.path(dir, configFile)),
			s.Data.verify(s.path(dir, dataFile))); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return m, nil
}

// validate refuses a manifest that is of another format, or that no world can have. Above all the
// streams must be a world's, since the names of streams become names of files.
func (m *Manifest) validate() error {
	if want := formatPrefix + commitlog.Format; m.Format != want {
		return fmt.Errorf("the format is %q, and not %s", m.Format, want)
	}
	if err := wire.ValidateWorld(m.World); err != nil {
		return err
	}
	want := BackupStreams(m.World, worldsettings.Settings{}, 1)
	for i, config := range want {
		if i >= len(m.Streams) || m.Streams[i].Name != config.Name {
			return fmt.Errorf("stream %d is not %s", i+1, config.Name)
		}
	}
	if len(m.Streams) != len(want) {
		return fmt.Errorf("there are %d streams, and not %d", len(m.Streams), len(want))
	}
	for _, left := range m.Dropped {
		if !commitlog.IsHistory(m.World, left.Subject) || left.Before == 0 ||
			left.Before > m.Streams[0].LastSeq {
			return fmt.Errorf("the log has no history %s before sequence %d", left.Subject,
				left.Before)
		}
	}
	return nil
}

func (s *Stream) path(dir, file string) string { return filepath.Join(dir, s.Name, file) }

// read reads the configuration and the state of a stream when its snapshot began.
func (s *Stream) read(dir string) (begun snapshot, err error) {
	data, err := os.ReadFile(s.path(dir, configFile))
	if err != nil {
		return begun, err
	}
	return begun, json.Unmarshal(data, &begun)
}

// verify returns an error if the file at a path is not the one that the manifest describes.
func (f *File) verify(path string) error {
	now, err := digest(path)
	switch {
	case err != nil:
		return err
	case now.Bytes != f.Bytes:
		return fmt.Errorf("%s has %d bytes, and had %d", path, now.Bytes, f.Bytes)
	case now.SHA256 != f.SHA256:
		return fmt.Errorf("%s was altered: its SHA-256 is %s, and was %s", path, now.SHA256, f.SHA256)
	}
	return nil
}

func digest(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	hash := sha256.New()
	n, err := io.Copy(hash, f)
	return File{Bytes: n, SHA256: hex.EncodeToString(hash.Sum(nil))}, err
}

// write writes the manifest, and syncs it and its directory.
func (m *Manifest) write(dir string) error {
	data, err := json.Marshal(m, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return platform.ReplaceFile(filepath.Join(dir, ManifestFile), append(data, '\n'))
}

package worldsettings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
)

// Stored is all that the log knows of a world's settings. The last record on layout.SettingsSubject
// has it; the configuration of the log's stream follows that record. A world of an earlier program
// has no such record before its first start by this one. Until then its settings are in the metadata
// of the stream.
type Stored struct {
	Settings
	// MinHistory is the least HistoryPerTown that the world has had.
	MinHistory int64
	// RestoredTo is the end of the backup from which the world was restored, or 0. Up to there
	// histories may be shorter than MinHistory: the log discarded old commits while it was being
	// copied.
	RestoredTo uint64
	// Sequence is the log sequence of the record; 0 if there is none.
	Sequence uint64

	unknown []machine.Setting // of a later program
}

// The names of the members of Stored in a record, beside the names of settings.
const (
	minHistory = "least-history"
	restoredTo = "restored-to"
)

// The metadata of the stream of a log has each setting under its name behind settingPrefix, and the
// other members of Stored behind extraPrefix.
const (
	settingPrefix = "worldengine."
	extraPrefix   = "worldengine-"
)

// ConfigLost is a key in the metadata of a stream whose configuration was lost and made anew from
// nothing. The settings of such a world are in its log, or lost.
const ConfigLost = "worldengine-config-lost"

// parseStored returns stored settings. A setting that this version cannot read is dropped, except the types
// to approve: without them a server would execute proposals that a person has to approve.
func parseStored(list []machine.Setting) (s Stored) {
	for _, setting := range list {
		switch next := s.Settings; setting.Name {
		case minHistory:
			s.MinHistory, _ = strconv.ParseInt(setting.Value, 10, 64)
		case restoredTo:
			s.RestoredTo, _ = strconv.ParseUint(setting.Value, 10, 64)
		case HistorySetting, BindingSetting, ApprovalSetting, CompressSetting:
			if err := next.Set(setting.Name, setting.Value); err == nil {
				s.Settings = next
			} else if setting.Name == ApprovalSetting {
				s.RequireApproval = setting.Value
			}
		default:
			s.unknown = append(s.unknown, setting)
		}
	}
	return s
}

// Entries returns all members, as a record has them.
func (s Stored) Entries() []machine.Setting {
	return slices.Concat(s.List(), s.extras(), s.unknown)
}

// extras returns the members that an operator cannot set.
func (s Stored) extras() (past []machine.Setting) {
	add := func(name, value string) { past = append(past, machine.Setting{Name: name, Value: value}) }
	if 0 < s.MinHistory && s.MinHistory < s.HistoryPerTown {
		add(minHistory, strconv.FormatInt(s.MinHistory, 10))
	}
	if s.RestoredTo > 0 {
		add(restoredTo, strconv.FormatUint(s.RestoredTo, 10))
	}
	return past
}

// complete sets the members that were not given.
func (s Stored) complete() Stored {
	s.Settings = s.WithDefaults(Default())
	s.MinHistory = min(cmp.Or(s.MinHistory, s.HistoryPerTown), s.HistoryPerTown)
	return s
}

// withSettings returns the stored settings after a change to others.
func (s Stored) withSettings(settings Settings) Stored {
	s.MinHistory = min(cmp.Or(s.MinHistory, settings.HistoryPerTown), settings.HistoryPerTown)
	s.Settings = settings
	return s
}

// Configure makes the configuration of the stream of a log follow the settings.
func (s Stored) Configure(config *jetstream.StreamConfig) {
	config.MaxMsgsPerSubject = s.HistoryPerTown
	config.Compression = s.Compress.stream(config.Replicas)
	config.Metadata = map[string]string{commitlog.FormatKey: commitlog.Format}
	for _, setting := range s.List() {
		config.Metadata[settingPrefix+setting.Name] = setting.Value
	}
	for _, setting := range s.extras() {
		config.Metadata[extraPrefix+setting.Name] = setting.Value
	}
}

// ReadStreamConfig returns the settings in the configuration of the stream of a log. They count only if
// the log has no record of settings.
func ReadStreamConfig(config jetstream.StreamConfig) Stored {
	var list []machine.Setting
	for _, key := range slices.Sorted(maps.Keys(config.Metadata)) {
		name, found := strings.CutPrefix(key, settingPrefix)
		if !found {
			name, found = strings.CutPrefix(key, extraPrefix)
		}
		if found && key != commitlog.FormatKey {
			list = append(list, machine.Setting{Name: name, Value: config.Metadata[key]})
		}
	}
	s := parseStored(list)
	s.unknown = nil
	if s.MinHistory == 0 && config.MaxMsgsPerSubject > 0 {
		s.MinHistory = config.MaxMsgsPerSubject
	}
	return s.complete()
}

// ErrSettingsLost means that nothing that is left of a world says its settings. So it is unknown which
// proposals a person must approve.
var ErrSettingsLost = errors.New("worldsettings: the settings of the world are lost: give all of " +
	"them anew, to handoffd (--history-per-town, --apply, --require-approval, --compress, with " +
	"--discard-history) or to handoffctl world settings set, or restore a backup")

// Read returns the settings of the world of a log. The error is ErrSettingsLost or
// ErrLogUnavailable.
func Read(ctx context.Context, log *commitlog.Log) (Stored, error) {
	msg, err := log.Store.Last(ctx, layout.SettingsSubject(log.World))
	switch {
	case errors.Is(err, commitlog.ErrUnreadable):
		return Stored{}, fmt.Errorf("%w: their record was changed on the disk", ErrSettingsLost)
	case err != nil:
		return Stored{}, fmt.Errorf("%w: settings of the world %s: %w", commitlog.ErrLogUnavailable, log.World,
			err)
	case msg != nil:
		return readSettings(msg)
	}
	config := log.Stream.CachedInfo().Config
	if config.Metadata[ConfigLost] != "" {
		return Stored{}, fmt.Errorf("%w: the configuration of the stream %s is lost, and the log "+
			"has no record of them", ErrSettingsLost, config.Name)
	}
	return ReadStreamConfig(config), nil
}

// readSettings reads a message with the settings of a world.
func readSettings(msg *jetstream.RawStreamMsg) (Stored, error) {
	rec, err := records.Read(msg.Data)
	if err == nil && (rec.Kind != machine.KindSettings || len(rec.Settings) == 0) {
		err = fmt.Errorf("it is a record of kind %q without settings", rec.Kind)
	}
	if err != nil {
		return Stored{Sequence: msg.Sequence}, fmt.Errorf("%w: log sequence %d: %w", ErrSettingsLost,
			msg.Sequence, err)
	}
	s := ReadRecord(rec)
	s.Sequence = msg.Sequence
	return s, nil
}

// ReadRecord returns the settings in a record of kind settings.
func ReadRecord(rec *machine.Record) Stored { return parseStored(rec.Settings).complete() }

// append appends the settings to the log, behind the record at a sequence, and returns their own
// sequence. It returns ErrLostRace if the settings were changed meanwhile.
func (s Stored) append(ctx context.Context, log *commitlog.Log, guard uint64) (uint64, error) {
	rec := &machine.Record{Kind: machine.KindSettings, Settings: s.Entries()}
	msg, err := records.Encode(rec, layout.SettingsSubject(log.World), nil)
	if err != nil {
		return 0, err
	}
	return log.Commit(ctx, msg, guard)
}

// Package worldsettings has the settings of a world, which its log keeps in records: how they are read,
// compared with a server's, and changed, and how the configuration of the log's stream follows them.
package worldsettings

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

// Settings are common to all servers of a world, and stored in a record of its log: see Stored. A
// member's zero value means that it is not given. Members with help are flags of handoffd.
type Settings struct {
	// HistoryPerTown is the number of commits, and of refused runs, that the log keeps of a town. A
	// town's last commit, which has its state, never expires.
	HistoryPerTown int64         `kong:"-"`
	Binding        apply.Binding `name:"apply" help:"Who applies the commands of towns that have no binding of their own: the built-in rules (local), the plugin of the town's game server (plugin), or the console of a game server without one (rcon). A setting of the world, local for a new one." enum:",local,plugin,rcon" default:""`
	// RequireApproval is the text of an approval.Policy.
	RequireApproval string      `name:"require-approval" help:"Types of proposals that a person must approve, in towns without a policy of their own: TYPE,… such as PROJECT_ADVANCE, or none; see docs/operators.md. A setting of the world, none for a new one." placeholder:"TYPE,…"`
	Compress        Compression `help:"Streams that NATS compresses, if they have one replica, once a block of them is full: the bus (events), or the log too (all), whose records are packed already, so that all gains little, and one damaged bit destroys a whole block. A setting of the world, events for a new one." enum:",events,all" default:"" group:"Storage:"`
}

// Compression names the streams of a world that NATS compresses, a block of messages at a time,
// once the block is full. A change of a stream's compression waits for the next start of NATS.
type Compression string

const (
	// CompressEvents compresses the bus alone, which can be made again from the log.
	CompressEvents Compression = "events"
	// CompressAll compresses the log too. A changed bit on the disk then destroys a whole block,
	// and so the last records of towns. Choose it only for a disk, or a file system, that repairs or
	// refuses changed blocks.
	CompressAll Compression = "all"
)

// Validate returns an error if c is unknown.
func (c Compression) Validate() error {
	if c == CompressEvents || c == CompressAll {
		return nil
	}
	return fmt.Errorf("worldsettings: %s must be %s or %s, not %q", CompressSetting, CompressEvents,
		CompressAll, string(c))
}

// stream returns the compression of the log's stream. A replicated stream is never compressed: a
// replica that comes back after a kill cannot cut off the end of a compressed block, and stops for
// good (nats-server 2.15).
func (c Compression) stream(replicas int) jetstream.StoreCompression {
	if c == CompressAll && replicas <= 1 {
		return jetstream.S2Compression
	}
	return jetstream.NoCompression
}

// The names of the settings.
const (
	HistorySetting  = "history-per-town"
	BindingSetting  = "apply"
	ApprovalSetting = "require-approval"
	CompressSetting = "compress"
)

// Bounds of a setting.
const (
	// DefaultHistoryPerTown is how many commits (and as many refused runs) the log keeps per town.
	DefaultHistoryPerTown = 10_000
	// MinHistoryPerTown is the shortest history that handoffd accepts. If a kill undoes the last
	// events on the bus, the log must still have their commits, so that they are published again.
	MinHistoryPerTown = 1_000
)

// StreamConfig returns the configuration of the stream of the log of a world with the settings.
func StreamConfig(world string, s Settings, replicas int) jetstream.StreamConfig {
	config := commitlog.StreamConfig(world, replicas)
	Stored{Settings: s}.Configure(&config)
	return config
}

// Default are the settings of a new world that is given none.
func Default() Settings {
	return Settings{
		HistoryPerTown: DefaultHistoryPerTown,
		Binding:        apply.Local, RequireApproval: approval.None, Compress: CompressEvents,
	}
}

// WithDefaults returns the settings; defaults replace those that are not given.
func (s Settings) WithDefaults(defaults Settings) Settings {
	return Settings{
		HistoryPerTown:  cmp.Or(s.HistoryPerTown, defaults.HistoryPerTown),
		Binding:         cmp.Or(s.Binding, defaults.Binding),
		RequireApproval: cmp.Or(s.RequireApproval, defaults.RequireApproval),
		Compress:        cmp.Or(s.Compress, defaults.Compress),
	}
}

// List returns the settings that are given, in the order of the struct.
func (s Settings) List() []machine.Setting {
	return slices.DeleteFunc(s.all(), func(setting machine.Setting) bool { return setting.Value == "" })
}

// all returns the settings in the order of the struct, with "" for those that are not given.
func (s Settings) all() []machine.Setting {
	history := ""
	if s.HistoryPerTown != 0 {
		history = strconv.FormatInt(s.HistoryPerTown, 10)
	}
	return []machine.Setting{
		{Name: HistorySetting, Value: history}, {Name: BindingSetting, Value: string(s.Binding)},
		{Name: ApprovalSetting, Value: s.RequireApproval},
		{Name: CompressSetting, Value: string(s.Compress)},
	}
}

// Validate returns an error for a setting that the engine accepts but an operator may not set.
func (s Settings) Validate() error {
	if s.HistoryPerTown != 0 && s.HistoryPerTown < MinHistoryPerTown {
		return fmt.Errorf("worldsettings: %s must be at least %d, not %d", HistorySetting,
			MinHistoryPerTown, s.HistoryPerTown)
	}
	return nil
}

// Normalized returns the settings with the approvals in their stored form, or an error if they are
// invalid.
func (s Settings) Normalized() (Settings, error) {
	if s.RequireApproval == "" {
		return s, nil
	}
	err := s.Set(ApprovalSetting, s.RequireApproval)
	return s, err
}

// Policy returns the types of proposals that require a person's approval in towns without a policy.
// It may name types that this version does not know: see read.
func (s Settings) Policy() approval.Policy { return approval.ParseStored(s.RequireApproval) }

// Set sets a setting by its name. The error lists the valid values.
func (s *Settings) Set(name, value string) error {
	var err error
	switch name {
	case HistorySetting:
		s.HistoryPerTown, err = strconv.ParseInt(value, 10, 64)
		if err != nil || s.HistoryPerTown < 1 {
			return fmt.Errorf("worldsettings: %s must be at least 1, not %q", name, value)
		}
	case BindingSetting:
		s.Binding = apply.Binding(value)
		err = s.Binding.Validate()
	case ApprovalSetting:
		p, unknown := approval.Parse(value)
		if unknown != nil {
			return fmt.Errorf("worldsettings: %s: %w", name, unknown)
		}
		s.RequireApproval = p.String()
	case CompressSetting:
		s.Compress = Compression(value)
		err = s.Compress.Validate()
	default:
		return fmt.Errorf("worldsettings: there is no setting %q of a world, but %s, %s, %s and "+
			"%s", name, HistorySetting, BindingSetting, ApprovalSetting, CompressSetting)
	}
	return err
}

// Difference is a setting in which a server and its world differ.
type Difference struct {
	Name      string `json:"name"`
	World     string `json:"world"`
	Requested string `json:"given"`
}

// differences returns the given settings that differ from the world's.
func (s Settings) differences(world Settings) (found []Difference) {
	for i, own := range world.all() {
		if given := s.all()[i]; given.Value != "" && given.Value != own.Value {
			found = append(found, Difference{given.Name, own.Value, given.Value})
		}
	}
	return found
}

// DifferError: the settings given to a server differ from its world's. Give the world's settings
// or none, or change the world's.
type DifferError struct {
	World string
	*Plan
}

// Error names each difference and the messages that it would discard.
func (e *DifferError) Error() string {
	var differ []string
	for _, d := range e.Differences {
		differ = append(differ, fmt.Sprintf(" --%s %s, and the world has %s", d.Name, d.Requested, d.World))
	}
	if e.Discards > 0 {
		differ = append(differ, fmt.Sprintf(" --%s would discard messages of %s: %d", HistorySetting,
			layout.LogStream(e.World), e.Discards))
	}
	return fmt.Sprintf("worldsettings: the settings differ from the settings of the world %s:%s. Omit "+
		"them to serve with the world's settings, change them for all servers with handoffctl world "+
		"settings set, or give --discard-history to make these the world's", e.World,
		strings.Join(differ, ";"))
}

package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/apply"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/wire"
)

// Settings are common to all servers of a world, and stored in the metadata of its log's stream. A
// member's zero value means that it is not given. Members with help are flags of handoffd.
type Settings struct {
	// HistoryPerTown is the number of commits, and of refused runs, that the log keeps of a town. A
	// town's last commit, which has its state, never expires.
	HistoryPerTown int64         `kong:"-"`
	Apply          apply.Binding `help:"Who applies the commands of towns that have no binding of their own: the built-in rules (local), the plugin of the town's game server (plugin), or the console of a game server without one (rcon). A setting of the world, local for a new one." enum:",local,plugin,rcon" default:""`
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
	// and so the last records of towns. Choose it only for a disk, or a file system, that mends or
	// refuses changed blocks.
	CompressAll Compression = "all"
)

// Validate returns an error if c is unknown.
func (c Compression) Validate() error {
	if c == CompressEvents || c == CompressAll {
		return nil
	}
	return fmt.Errorf("worldengine: %s must be %s or %s, not %q", CompressSetting, CompressEvents,
		CompressAll, string(c))
}

// ofLog returns the compression of the log's stream. A replicated stream is never compressed: a
// replica that comes back after a kill cannot cut off the end of a compressed block, and stops for
// good (nats-server 2.15).
func (c Compression) ofLog(replicas int) jetstream.StoreCompression {
	if c == CompressAll && replicas <= 1 {
		return jetstream.S2Compression
	}
	return jetstream.NoCompression
}

// Setting is one setting, by the name of its flag of handoffd.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// The names of the settings.
const (
	HistorySetting  = "history-per-town"
	ApplySetting    = "apply"
	ApprovalSetting = "require-approval"
	CompressSetting = "compress"
)

// DefaultSettings are the settings of a new world that is given none.
func DefaultSettings() Settings {
	return Settings{
		HistoryPerTown: wire.DefaultHistoryPerTown,
		Apply:          apply.Local, RequireApproval: approval.None, Compress: CompressEvents,
	}
}

// Or returns the settings; others replace those that are not given.
func (s Settings) Or(others Settings) Settings {
	return Settings{
		HistoryPerTown:  cmp.Or(s.HistoryPerTown, others.HistoryPerTown),
		Apply:           cmp.Or(s.Apply, others.Apply),
		RequireApproval: cmp.Or(s.RequireApproval, others.RequireApproval),
		Compress:        cmp.Or(s.Compress, others.Compress),
	}
}

// List returns the settings that are given, in the order of the struct.
func (s Settings) List() []Setting {
	return slices.DeleteFunc(s.all(), func(setting Setting) bool { return setting.Value == "" })
}

// all returns the settings in the order of the struct, with "" for those that are not given.
func (s Settings) all() []Setting {
	history := ""
	if s.HistoryPerTown != 0 {
		history = strconv.FormatInt(s.HistoryPerTown, 10)
	}
	return []Setting{
		{HistorySetting, history}, {ApplySetting, string(s.Apply)},
		{ApprovalSetting, s.RequireApproval}, {CompressSetting, string(s.Compress)},
	}
}

// Validate returns an error for a setting that the engine accepts but an operator may not set.
func (s Settings) Validate() error {
	if s.HistoryPerTown != 0 && s.HistoryPerTown < wire.LeastHistoryPerTown {
		return fmt.Errorf("worldengine: %s must be at least %d, not %d", HistorySetting,
			wire.LeastHistoryPerTown, s.HistoryPerTown)
	}
	return nil
}

// Checked returns the settings with the approvals in their stored form, or an error if they are
// invalid.
func (s Settings) Checked() (Settings, error) {
	if s.RequireApproval == "" {
		return s, nil
	}
	err := s.Set(ApprovalSetting, s.RequireApproval)
	return s, err
}

// Policy returns the types of proposals that require a person's approval in towns without a policy.
// It may name types that this version does not know: see SettingsOf.
func (s Settings) Policy() approval.Policy { return approval.Stored(s.RequireApproval) }

// Set sets a setting by its name. The error lists the valid values.
func (s *Settings) Set(name, value string) error {
	var err error
	switch name {
	case HistorySetting:
		s.HistoryPerTown, err = strconv.ParseInt(value, 10, 64)
		if err != nil || s.HistoryPerTown < 1 {
			return fmt.Errorf("worldengine: %s must be at least 1, not %q", name, value)
		}
	case ApplySetting:
		s.Apply = apply.Binding(value)
		err = s.Apply.Validate()
	case ApprovalSetting:
		p, unknown := approval.Parse(value)
		if unknown != nil {
			return fmt.Errorf("worldengine: %s: %w", name, unknown)
		}
		s.RequireApproval = p.String()
	case CompressSetting:
		s.Compress = Compression(value)
		err = s.Compress.Validate()
	default:
		return fmt.Errorf("worldengine: there is no setting %q of a world, but %s, %s, %s and "+
			"%s", name, HistorySetting, ApplySetting, ApprovalSetting, CompressSetting)
	}
	return err
}

// settingPrefix begins the keys of the settings in the metadata of the log's stream.
const settingPrefix = "worldengine."

// leastHistory is the key of the least HistoryPerTown that a world has had, if it was raised since.
// restoredTo is the key of the end of the backup from which the world was restored.
const (
	leastHistory = "worldengine-least-history"
	restoredTo   = "worldengine-restored-to"
)

// LeastHistory returns the least history that a log has kept of a town.
func LeastHistory(log jetstream.StreamConfig) int64 {
	if least, err := strconv.ParseInt(log.Metadata[leastHistory], 10, 64); err == nil {
		return min(least, log.MaxMsgsPerSubject)
	}
	return log.MaxMsgsPerSubject
}

// MarkRestored stores in the configuration of a log that it was restored up to a sequence, and the
// least history that the log kept before, by its configuration then.
func MarkRestored(log *jetstream.StreamConfig, before jetstream.StreamConfig, end uint64) {
	*log = keepPast(*log, before)
	log.Metadata[restoredTo] = strconv.FormatUint(end, 10)
}

// RestoredTo returns the sequence up to which a log was restored from a backup, or 0. Up to there
// histories may be shorter than LeastHistory: the log discarded old commits while it was being
// copied.
func RestoredTo(log jetstream.StreamConfig) uint64 {
	end, _ := strconv.ParseUint(log.Metadata[restoredTo], 10, 64)
	return end
}

// keepPast copies two facts from the configuration before into log: the least history that the log
// has kept, and the end of a restore.
func keepPast(log, before jetstream.StreamConfig) jetstream.StreamConfig {
	if end := before.Metadata[restoredTo]; end != "" && log.Metadata != nil {
		log.Metadata[restoredTo] = end
	}
	if least := LeastHistory(before); log.Metadata != nil && least < log.MaxMsgsPerSubject {
		log.Metadata[leastHistory] = strconv.FormatInt(least, 10)
	}
	return log
}

// Metadata returns the settings, and the format, as metadata of the stream of a log.
func (s Settings) Metadata() map[string]string {
	metadata := map[string]string{formatKey: Format}
	for _, setting := range s.List() {
		metadata[settingPrefix+setting.Name] = setting.Value
	}
	return metadata
}

// SettingsOf returns the settings in the metadata of a log's stream. A setting that this version
// cannot read is dropped, except the types to approve: without them a server would execute
// proposals that a person has to approve.
func SettingsOf(metadata map[string]string) Settings {
	var s Settings
	for key, value := range metadata {
		name, ours := strings.CutPrefix(key, settingPrefix)
		if !ours {
			continue
		}
		if read := s; read.Set(name, value) == nil {
			s = read
		} else if name == ApprovalSetting {
			s.RequireApproval = value
		}
	}
	return s
}

// Difference is a setting in which a server and its world differ.
type Difference struct {
	Name  string `json:"name"`
	World string `json:"world"`
	Given string `json:"given"`
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

// SettingsError: the settings given to a server differ from its world's. Give the world's settings
// or none, or change the world's.
type SettingsError struct {
	World string
	*Plan
}

// Error names each difference and the messages that it would discard.
func (e *SettingsError) Error() string {
	var differ []string
	for _, d := range e.Differences {
		differ = append(differ, fmt.Sprintf(" --%s %s, and the world has %s", d.Name, d.Given, d.World))
	}
	if e.Discards > 0 {
		differ = append(differ, fmt.Sprintf(" --%s would discard messages of %s: %d", HistorySetting,
			wire.LogStream(e.World), e.Discards))
	}
	return fmt.Sprintf("worldengine: the settings differ from the settings of the world %s:%s. Omit "+
		"them to serve with the world's settings, change them for all servers with handoffctl world "+
		"settings set, or give --discard-history to make these the world's", e.World,
		strings.Join(differ, ";"))
}

// Plan compares a server's settings with its world's.
type Plan struct {
	// New is set if there is no such world yet.
	New bool
	// Settings are the settings to serve with.
	Settings Settings
	// Differences are the given settings that the world does not have.
	Differences []Difference
	// Discards is the number of the log's messages that a lower HistoryPerTown would discard.
	Discards uint64

	log jetstream.Stream // as it is now
}

// Refusal returns an error if a server may not serve the world with these settings.
func (p *Plan) Refusal(world string, discard bool) error {
	if discard || len(p.Differences) == 0 {
		return nil
	}
	return &SettingsError{world, p}
}

// PlanSettings compares a server's settings with its world's. It changes nothing.
func PlanSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings,
) (*Plan, error) {
	given, err := given.Checked()
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	err = UntilItPasses(ctx, func(ctx context.Context) (err error) {
		plan.log, err = OpenLog(ctx, js, world)
		return err
	})
	if errors.Is(err, ErrNoWorld) {
		return &Plan{New: true, Settings: given.Or(DefaultSettings())}, nil
	}
	if err != nil {
		return nil, err
	}
	current := SettingsOf(plan.log.CachedInfo().Config.Metadata).Or(DefaultSettings())
	plan.Settings, plan.Differences = given.Or(current), given.differences(current)
	if plan.Settings.HistoryPerTown >= current.HistoryPerTown {
		return plan, nil
	}
	subjects, err := SubjectsOf(ctx, plan.log, ">")
	if err != nil {
		return nil, fmt.Errorf("worldengine: the settings of the world %s: %w", world, err)
	}
	for _, messages := range subjects {
		plan.Discards += messages - min(messages, uint64(plan.Settings.HistoryPerTown))
	}
	return plan, nil
}

// AgreeSettings returns the settings to serve a world with. It returns a *SettingsError if the
// world's settings differ from the given ones, unless discard accepts that.
func AgreeSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings, discard bool,
) (Settings, error) {
	plan, err := PlanSettings(ctx, js, world, given)
	if err != nil {
		return Settings{}, err
	}
	return plan.Settings, plan.Refusal(world, discard)
}

// ChangeSettings gives a world the settings, for all its servers. The length of histories changes
// at once, the binding (Apply) when each server restarts, and the compression when NATS restarts.
// ChangeSettings returns a *SettingsError if messages would be discarded and discard is not set.
func ChangeSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings, discard bool,
) (*Plan, error) {
	plan, err := PlanSettings(ctx, js, world, given)
	if err != nil {
		return nil, err
	}
	if plan.New {
		return nil, fmt.Errorf("%w: %s", ErrNoWorld, world)
	}
	if plan.Discards > 0 && !discard {
		return nil, &SettingsError{world, plan}
	}
	before := plan.log.CachedInfo().Config
	config := before
	config.Metadata, config.MaxMsgsPerSubject = plan.Settings.Metadata(), plan.Settings.HistoryPerTown
	config.Compression = plan.Settings.Compress.ofLog(config.Replicas)
	if _, err := js.UpdateStream(ctx, keepPast(config, before)); err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", config.Name, err)
	}
	return plan, nil
}

package worldsettings

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
)

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

	stored Stored
	forced bool           // store them, even if stored is equal
	log    *commitlog.Log // nil if New
}

// Refusal returns an error if a server may not serve the world with these settings.
func (p *Plan) Refusal(world string, discard bool) error {
	if discard || len(p.Differences) == 0 {
		return nil
	}
	return &DifferError{world, p}
}

// MakePlan compares a server's settings with its world's. It changes nothing. The error is
// ErrLogMissing if the world is not new, and has no log, ErrLogLimited, and ErrHistoryNeeded if the history
// would be too short.
func MakePlan(
	ctx context.Context, js jetstream.JetStream, world string, given Settings,
) (*Plan, error) {
	given, err := given.Normalized()
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	err = commitlog.RetryTransient(ctx, func(ctx context.Context) (err error) {
		if plan.log, err = commitlog.OpenReader(ctx, js, world); errors.Is(err, commitlog.ErrNoWorld) {
			if missing := refuseWithoutLog(ctx, js, world); missing == nil {
				return err
			} else if plan.log, err = commitlog.OpenReader(ctx, js, world); errors.Is(err, commitlog.ErrNoWorld) {
				return missing // else another server made the world between the looks
			}
		}
		if err == nil {
			err = commitlog.CheckLimits(plan.log.Stream.CachedInfo().Config)
		}
		if err == nil {
			plan.stored, err = Read(ctx, plan.log)
		}
		return err
	})
	if errors.Is(err, commitlog.ErrNoWorld) {
		return &Plan{New: true, Settings: given.WithDefaults(Default())}, nil
	}
	if err == nil {
		err = plan.compare(ctx, given)
	} else if errors.Is(err, ErrSettingsLost) && len(given.List()) == len(given.all()) {
		sequence := plan.stored.Sequence
		plan.stored, plan.forced = ReadStreamConfig(plan.log.Stream.CachedInfo().Config), true
		plan.stored.Sequence = sequence
		err = plan.compare(ctx, given)
	}
	if err != nil {
		return nil, err
	}
	return plan, nil
}

// compare sets the members of a plan for an existing world.
func (p *Plan) compare(ctx context.Context, given Settings) error {
	current := p.stored.Settings
	p.Settings, p.Differences = given.WithDefaults(current), given.differences(current)
	if p.Settings.HistoryPerTown >= current.HistoryPerTown {
		return nil
	}
	subjects, err := commitlog.SubjectsOf(ctx, p.log.Stream, ">")
	if err != nil {
		return fmt.Errorf("worldsettings: the settings of the world %s: %w", p.log.World, err)
	}
	delete(subjects, layout.SettingsSubject(p.log.World)) // only the last one counts
	for _, messages := range subjects {
		p.Discards += messages - min(messages, uint64(p.Settings.HistoryPerTown))
	}
	return p.checkRequiredHistory(ctx, subjects)
}

// PlanToServe returns the plan to serve a world with given settings. It returns a *DifferError
// if the world's settings differ from the given ones, unless discard accepts that.
func PlanToServe(
	ctx context.Context, js jetstream.JetStream, world string, given Settings, discard bool,
) (*Plan, error) {
	plan, err := MakePlan(ctx, js, world, given)
	if err != nil {
		return nil, err
	}
	return plan, plan.Refusal(world, discard)
}

// Change gives a world the settings, for all its servers. The length of histories changes
// at once, the binding when each server restarts, and the compression when NATS restarts.
// Change returns a *DifferError if messages would be discarded and discard is not set.
func Change(
	ctx context.Context, js jetstream.JetStream, world string, given Settings, discard bool,
) (plan *Plan, err error) {
	err = new(commitlog.Log).RetryLostRaces(ctx, func() error {
		if plan, err = MakePlan(ctx, js, world, given); err != nil {
			return err
		}
		if plan.New {
			return fmt.Errorf("%w: %s", commitlog.ErrNoWorld, world)
		}
		if plan.Discards > 0 && !discard {
			return &DifferError{world, plan}
		}
		return plan.recordAndUpdate(ctx, js)
	})
	return plan, err
}

// recordAndUpdate stores the settings of the plan in the log, and makes the configuration of its stream
// follow them.
func (p *Plan) recordAndUpdate(ctx context.Context, js jetstream.JetStream) error {
	if err := p.record(ctx, js); err != nil {
		return err
	}
	return UpdateStream(ctx, js, p.log.Stream, p.stored)
}

// UpdateStream makes the configuration of the stream of a log follow settings that are in the log. It returns
// ErrLostRace if the log is gone.
func UpdateStream(ctx context.Context, js jetstream.JetStream, log jetstream.Stream, s Stored) error {
	config := log.CachedInfo().Config
	s.Configure(&config)
	_, err := commitlog.UpdateLog(ctx, js, config, quiet)
	if err != nil {
		return fmt.Errorf("worldsettings: stream %s: the settings are in the log, and the "+
			"configuration of the stream does not follow them before a server of the world starts "+
			"again: %w", config.Name, err)
	}
	return nil
}

// quiet is for updates that discard nothing which the operator has not accepted.
var quiet = slog.New(slog.DiscardHandler)

// record stores the settings of the plan in the log, unless they are there. They MUST be there
// before the configuration of the stream follows them. It returns ErrLostRace if the settings were
// changed since they were read.
func (p *Plan) record(ctx context.Context, js jetstream.JetStream) error {
	after := p.stored.withSettings(p.Settings)
	if p.stored.Sequence > 0 && !p.forced && reflect.DeepEqual(after, p.stored) {
		return nil
	}
	if err := p.addSubject(ctx, js); err != nil {
		return err
	}
	seq, err := after.append(ctx, p.log, p.stored.Sequence)
	if err != nil {
		return err
	}
	after.Sequence, p.stored = seq, after
	return nil
}

// addSubject adds the subject of settings to the log of a world of an earlier program.
func (p *Plan) addSubject(ctx context.Context, js jetstream.JetStream) error {
	config, subject := p.log.Stream.CachedInfo().Config, layout.SettingsSubject(p.log.World)
	if commitlog.Identity(config) != "" || slices.Contains(config.Subjects, subject) {
		return nil
	}
	config.Subjects = append(slices.Clone(config.Subjects), subject)
	stream, err := commitlog.UpdateLog(ctx, js, config, quiet)
	if err == nil {
		p.log.Stream = stream
	}
	return err
}

// MarkRestored stores in a restored log that it was restored up to a sequence. The configured settings
// count if the log has no readable ones.
func MarkRestored(
	ctx context.Context, js jetstream.JetStream, world string, configured Settings, end uint64,
) error {
	plan, err := MakePlan(ctx, js, world, Settings{})
	if errors.Is(err, ErrSettingsLost) {
		plan, err = MakePlan(ctx, js, world, configured)
	}
	if err != nil {
		return err
	}
	if plan.stored.RestoredTo != end {
		plan.stored.RestoredTo, plan.forced = end, true
	}
	return plan.recordAndUpdate(ctx, js)
}

// OpenLog creates the stream of a new world's log, or opens the log. It stores the settings of
// the plan in the log, and makes the configuration of the stream follow them. The error is
// ErrLostRace if another process has made the world, removed it, or changed its settings, since the plan
// was made.
func OpenLog(
	ctx context.Context, js jetstream.JetStream, world string, plan *Plan, replicas int,
	logger *slog.Logger,
) (jetstream.Stream, error) {
	if plan.New {
		config := StreamConfig(world, plan.Settings, replicas)
		commitlog.Identify(&config, world, nuid.Next())
		stream, err := createLog(ctx, js, config)
		if err != nil {
			return nil, err
		}
		plan.log = &commitlog.Log{World: world, Stream: stream, Store: commitlog.NewStore(js, stream, false)}
	}
	before := plan.stored
	if err := plan.record(ctx, js); err != nil {
		return nil, err
	}
	plan.warn(before, replicas, logger)
	config := StreamConfig(world, plan.Settings, replicas)
	plan.stored.Configure(&config)
	commitlog.Identify(&config, world, commitlog.Identity(plan.log.Stream.CachedInfo().Config))
	return commitlog.UpdateLog(ctx, js, config, logger)
}

// createLog creates the stream of a new world's log. It returns ErrLostRace if the stream exists
// with another configuration.
func createLog(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig,
) (stream jetstream.Stream, err error) {
	err = commitlog.RetryTransient(ctx, func(ctx context.Context) (err error) {
		stream, err = js.CreateStream(ctx, config)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil, commitlog.ErrLostRace
	}
	if err != nil {
		return nil, fmt.Errorf("worldsettings: stream %s: %w", config.Name, err)
	}
	return stream, nil
}

// warn logs the effects of the settings that an operator may not expect. before are the settings
// before the start.
func (p *Plan) warn(before Stored, replicas int, logger *slog.Logger) {
	if unknown := p.Settings.Policy().UnknownTypes(); len(unknown) > 0 {
		logger.Error("the world's setting require-approval names types of proposals that this "+
			"version does not know, so every proposal requires a person's approval, except in "+
			"towns with a list of their own: update this server, or change the setting with "+
			"handoffctl world settings set", "setting", p.Settings.RequireApproval,
			"unknown", unknown)
	}
	if p.Settings.Compress == CompressAll && replicas > 1 {
		logger.Warn("the world's setting compress is all, but streams of several replicas are not "+
			"compressed: NATS cannot repair a compressed block of a replica that was killed",
			"replicas", replicas)
	}
	if before.Sequence == 0 {
		return
	}
	configured := ReadStreamConfig(p.log.Stream.CachedInfo().Config)
	if others := configured.differences(before.Settings); len(others) > 0 {
		logger.Warn("the configuration of the log's stream did not follow the settings of the world, "+
			"as after a kill or an earlier program: the settings in the log count, and it follows "+
			"them now", "differences", others, "sequence", before.Sequence)
	}
}

// ErrLogMissing means that other streams of a world exist, and its log does not. Such a world is not new.
var ErrLogMissing = errors.New("worldsettings: the log of the world is missing: put its stream back, " +
	"or remove the other streams of the world, and restore a backup or begin a new world")

// refuseWithoutLog returns ErrLogMissing if a stream of the world exists.
func refuseWithoutLog(ctx context.Context, js jetstream.JetStream, world string) error {
	for _, name := range layout.Streams(world) {
		_, err := js.Stream(ctx, name)
		if err == nil {
			return fmt.Errorf("%w: there is a stream %s, and no stream %s", ErrLogMissing, name,
				layout.LogStream(world))
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("%w: stream %s: %w", commitlog.ErrLogUnavailable, name, err)
		}
	}
	return nil
}

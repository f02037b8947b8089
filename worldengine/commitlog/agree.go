package commitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Discard is what a change of the settings would discard of a stream.
type Discard struct {
	Stream   string `json:"stream"`
	Setting  string `json:"setting"`
	Messages uint64 `json:"messages"`
}

// SettingsError: a server was given other settings than its world has. Give it the world's, or
// none, or change those of the world.
type SettingsError struct {
	World       string
	Differences []Difference
	// Discards is what the given settings would discard, as far as that is known.
	Discards []Discard
}

// Error names each difference and what it would discard.
func (e *SettingsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "worldengine: the settings differ from those of the world %s:", e.World)
	for i, d := range e.Differences {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " --%s %s, and the world has %s", d.Name, d.Given, d.World)
	}
	for _, d := range e.Discards {
		fmt.Fprintf(&b, "; --%s would discard messages of %s: %d", d.Setting, d.Stream, d.Messages)
	}
	b.WriteString(". Leave them out to serve with those of the world, change them for all " +
		"servers with handoffctl world settings set, or give --discard-history to make these the " +
		"world's")
	return b.String()
}

// Plan is what serving a world with given settings comes to.
type Plan struct {
	// New is set where there is no such world yet.
	New bool
	// Settings are those to serve with.
	Settings Settings
	// Differences are the given settings that the world does not have, and Discards what they would
	// discard.
	Differences []Difference
	Discards    []Discard
}

// PlanSettings finds out what serving a world with given settings comes to. It changes nothing.
func PlanSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings,
) (*Plan, error) {
	var plan *Plan
	var current Settings
	err := UntilItPasses(ctx, func(ctx context.Context) (err error) {
		plan, current, err = planSettings(ctx, js, world, given)
		return err
	})
	if err != nil || len(plan.Differences) == 0 {
		return plan, err
	}
	if plan.Discards, err = discards(ctx, js, world, current, plan.Settings); err != nil {
		return nil, fmt.Errorf("worldengine: the settings of the world %s: %w", world, err)
	}
	return plan, nil
}

// planSettings also returns the settings that the world has.
func planSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings,
) (*Plan, Settings, error) {
	log, err := OpenLog(ctx, js, world)
	if errors.Is(err, ErrNoWorld) {
		return &Plan{New: true, Settings: given.Or(DefaultSettings())}, Settings{}, nil
	}
	if err != nil {
		return nil, Settings{}, err
	}
	current := SettingsOf(log.CachedInfo().Config.Metadata).Or(DefaultSettings())
	return &Plan{Settings: given.Or(current), Differences: given.differences(current)}, current, nil
}

// discards returns what the change from one set of settings to another discards.
func discards(
	ctx context.Context, js jetstream.JetStream, world string, from, to Settings,
) ([]Discard, error) {
	var all []Discard
	for _, change := range []struct {
		setting, stream string
		lowered         bool
		count           func(context.Context, jetstream.Stream) (uint64, error)
	}{
		{HistorySetting, wire.LogStream(world), lowered(from.HistoryPerTown, to.HistoryPerTown),
			overHistory(to.HistoryPerTown)},
	} {
		if !change.lowered {
			continue
		}
		stream, err := js.Stream(ctx, change.stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		var messages uint64
		if err == nil {
			messages, err = change.count(ctx, stream)
		}
		if err != nil {
			return nil, err
		}
		if messages > 0 {
			all = append(all, Discard{change.stream, change.setting, messages})
		}
	}
	return all, nil
}

// lowered reports whether a limit becomes lower. Below 1 it is none.
func lowered(from, to int64) bool { return to > 0 && (from < 1 || to < from) }

// overHistory counts the messages of the log that are over the history of their subject.
func overHistory(history int64) func(context.Context, jetstream.Stream) (uint64, error) {
	return func(ctx context.Context, log jetstream.Stream) (over uint64, err error) {
		info, err := log.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err != nil {
			return 0, err
		}
		for _, messages := range info.State.Subjects {
			over += messages - min(messages, uint64(history))
		}
		return over, nil
	}
}

// AgreeSettings returns the settings to serve a world with. It returns a *SettingsError if the
// world has others than those that are given, unless discard accepts that.
func AgreeSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings, discard bool,
) (Settings, error) {
	plan, err := PlanSettings(ctx, js, world, given)
	if err != nil {
		return Settings{}, err
	}
	return plan.Settings, plan.Refusal(world, discard)
}

// ChangeSettings makes the given settings those of a world, for all its servers: what the streams
// keep changes at once, the binding when each server starts again, and the compression when NATS
// does. It returns a *SettingsError where that would discard something and discard is not set.
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
	if len(plan.Discards) > 0 && !discard {
		return nil, &SettingsError{World: world, Differences: plan.Differences,
			Discards: plan.Discards}
	}
	s := plan.Settings
	for _, change := range []struct {
		stream string
		apply  func(*jetstream.StreamConfig)
	}{
		// The log first: a server brings the other streams to what it says.
		{wire.LogStream(world), func(c *jetstream.StreamConfig) {
			before := *c
			c.Metadata, c.MaxMsgsPerSubject = s.Metadata(), s.HistoryPerTown
			keepPast(c, before)
			c.Compression = s.Compress.ofLog(c.Replicas)
		}},
	} {
		stream, err := js.Stream(ctx, change.stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // it is made again with these settings
		}
		if err == nil {
			config := stream.CachedInfo().Config
			change.apply(&config)
			_, err = js.UpdateStream(ctx, config)
		}
		if err != nil {
			return nil, fmt.Errorf("worldengine: stream %s: %w", change.stream, err)
		}
	}
	return plan, nil
}

// Refusal returns an error if a server may not serve the world with these settings.
func (p *Plan) Refusal(world string, discard bool) error {
	if discard || len(p.Differences) == 0 {
		return nil
	}
	return &SettingsError{World: world, Differences: p.Differences, Discards: p.Discards}
}

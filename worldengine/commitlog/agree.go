package commitlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/wire"
)

// Discard counts the messages of a stream that a change of the settings would discard.
type Discard struct {
	Stream   string `json:"stream"`
	Setting  string `json:"setting"`
	Messages uint64 `json:"messages"`
}

// SettingsError: the settings given to a server differ from its world's. Give the world's, or none,
// or change the world's.
type SettingsError struct {
	World       string
	Differences []Difference
	// Discards are the messages that the given settings would discard, as far as is known.
	Discards []Discard
}

// Error names each difference and the messages that it would discard.
func (e *SettingsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "worldengine: the settings differ from the settings of the world %s:", e.World)
	for i, d := range e.Differences {
		if i > 0 {
			b.WriteString(";")
		}
		fmt.Fprintf(&b, " --%s %s, and the world has %s", d.Name, d.Given, d.World)
	}
	for _, d := range e.Discards {
		fmt.Fprintf(&b, "; --%s would discard messages of %s: %d", d.Setting, d.Stream, d.Messages)
	}
	b.WriteString(". Omit them to serve with the world's settings, change them for all " +
		"servers with handoffctl world settings set, or give --discard-history to make these the " +
		"world's")
	return b.String()
}

// Plan is the result of PlanSettings.
type Plan struct {
	// New is set if there is no such world yet.
	New bool
	// Settings are those to serve with.
	Settings Settings
	// Differences are the given settings that the world does not have; Discards are the messages
	// that they would discard.
	Differences []Difference
	Discards    []Discard
}

// PlanSettings compares a server's settings with its world's. It changes nothing.
func PlanSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings,
) (*Plan, error) {
	var log jetstream.Stream
	err := UntilItPasses(ctx, func(ctx context.Context) (err error) {
		log, err = OpenLog(ctx, js, world)
		return err
	})
	if errors.Is(err, ErrNoWorld) {
		return &Plan{New: true, Settings: given.Or(DefaultSettings())}, nil
	}
	if err != nil {
		return nil, err
	}
	current := SettingsOf(log.CachedInfo().Config.Metadata).Or(DefaultSettings())
	plan := &Plan{Settings: given.Or(current), Differences: given.differences(current)}
	history := plan.Settings.HistoryPerTown
	if !lowered(current.HistoryPerTown, history) {
		return plan, nil
	}
	subjects, err := SubjectsOf(ctx, log, ">")
	if err != nil {
		return nil, fmt.Errorf("worldengine: the settings of the world %s: %w", world, err)
	}
	var over uint64
	for _, messages := range subjects {
		over += messages - min(messages, uint64(history))
	}
	if over > 0 {
		plan.Discards = []Discard{{wire.LogStream(world), HistorySetting, over}}
	}
	return plan, nil
}

// lowered reports whether a limit becomes lower. Below 1 it is none.
func lowered(from, to int64) bool { return to > 0 && (from < 1 || to < from) }

// AgreeSettings returns the settings to serve a world with. It returns a *SettingsError if the
// world has others than the given ones, unless discard accepts that.
func AgreeSettings(
	ctx context.Context, js jetstream.JetStream, world string, given Settings, discard bool,
) (Settings, error) {
	plan, err := PlanSettings(ctx, js, world, given)
	if err != nil {
		return Settings{}, err
	}
	return plan.Settings, plan.Refusal(world, discard)
}

// ChangeSettings gives a world the settings, for all its servers. The history of a town changes at
// once, the binding when each server restarts, and the compression when NATS does. It returns a
// *SettingsError if that would discard messages and discard is not set.
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
	log, err := js.Stream(ctx, wire.LogStream(world))
	if err == nil {
		config, s := log.CachedInfo().Config, plan.Settings
		before := config
		config.Metadata, config.MaxMsgsPerSubject = s.Metadata(), s.HistoryPerTown
		keepPast(&config, before)
		config.Compression = s.Compress.ofLog(config.Replicas)
		_, err = js.UpdateStream(ctx, config)
	}
	if err != nil {
		return nil, fmt.Errorf("worldengine: stream %s: %w", wire.LogStream(world), err)
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

package worldengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
)

// BackupStreams returns the streams that a backup of a world has, as Open makes them with config, in the
// order in which they are to be copied from a world that is being served: what is derived before what
// tells why it may be incomplete, and the log, which everything follows, last. The marks of pending
// commands are not among them: see MarkPending.
func BackupStreams(config Config) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		dedupe.StreamConfig(config.World, config.DedupeRetention, config.Replicas),
		eventConfig(config.World, config.EventRetention, config.EventLimit, config.Replicas),
		deadLetterConfig(config.World, config.Replicas),
		alertConfig(config.World, config.Replicas),
		logConfig(config.World, config.HistoryPerTown, config.DedupeRetention, config.Replicas),
	}
}

// ErrHalfRestored says that a restore of the world began and did not come to its end. Run it again.
var ErrHalfRestored = errors.New("worldengine: the world is being restored, or was in part: run the restore again")

// RestoringConfig is the stream whose being there says that a restore of a world has not come to its end.
func RestoringConfig(world string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        "WORLD_" + world + "_RESTORING",
		Description: "A restore of " + world + " has not come to its end: nobody serves it until it is run again",
		Subjects:    []string{"world." + world + ".restoring"},
		Replicas:    max(replicas, 1),
	}
}

// refuseHalfRestored returns ErrHalfRestored as long as a restore has not come to its end.
func refuseHalfRestored(ctx context.Context, js jetstream.JetStream, world string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, streamTimeout)
		_, err := js.Stream(try, RestoringConfig(world, 1).Name)
		cancel()
		switch {
		case err == nil:
			return fmt.Errorf("%w: %s", ErrHalfRestored, world)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil
		case !passes(err) || pause(ctx) != nil:
			return fmt.Errorf("worldengine: is the world being restored: %w", err)
		}
	}
}

// MarkPending makes the marks of a restored world, one for each town whose last record says that a
// command is being applied, and returns how many there are. In a backup the marks could not agree with
// the log: one may be taken away before it is copied, and its command end after the log was.
func MarkPending(ctx context.Context, nc *nats.Conn, world string, replicas int) (int, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("worldengine: JetStream: %w", err)
	}
	log, err := js.Stream(ctx, LogStream(world))
	if err != nil {
		return 0, fmt.Errorf("worldengine: stream %s: %w", LogStream(world), err)
	}
	stream, err := openStream(ctx, js, markConfig(world, replicas), slog.Default())
	if err != nil {
		return 0, err
	}
	m := &marks{world: world, js: js, stream: stream}
	marked := 0
	err = each(ctx, log, jetstream.ConsumerConfig{
		FilterSubject: logSubject(world, "*"), DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}, func(msg jetstream.Msg, seq uint64) error {
		kind := recordKind(msg.Headers().Get(kindHeader))
		if kind != kindPending && kind != kindControl { // no other record has a command that is being applied
			return nil
		}
		town, err := pendingTown(ctx, log, seq)
		if town == "" || err != nil {
			return err
		}
		marked++
		return m.put(ctx, town)
	})
	return marked, err
}

// pendingTown returns the town of a log message if a command is being applied to it there, and else "".
func pendingTown(ctx context.Context, log jetstream.Stream, seq uint64) (string, error) {
	whole, err := log.GetMsg(ctx, seq)
	if err != nil {
		return "", fmt.Errorf("worldengine: log sequence %d: %w", seq, err)
	}
	rec, err := readRecord(whole.Data)
	if err != nil || rec.Pending == nil {
		return "", err
	}
	return rec.TownID, nil
}

// IsHistory says whether a subject of the log holds the history of a town, or of the pauses of the world. Each
// message there is guarded by the sequence of the one before it.
func IsHistory(world, subject string) bool {
	token, ofTown := strings.CutPrefix(subject, logSubject(world, ""))
	return subject == controlSubject(world) || ofTown && token != "" && !strings.ContainsAny(token, ".*>")
}

// BusiestTown returns the subject that got the most commits behind a sequence of the log, of those that
// the log still has, and how many those are.
func BusiestTown(
	ctx context.Context, log jetstream.Stream, world string, behind uint64,
) (subject string, n int64, err error) {
	commits := map[string]int64{}
	err = each(ctx, log, jetstream.ConsumerConfig{
		FilterSubjects: []string{logSubject(world, "*"), controlSubject(world)},
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: behind + 1,
	}, func(msg jetstream.Msg, _ uint64) error {
		commits[msg.Subject()]++
		if c := commits[msg.Subject()]; c > n {
			subject, n = msg.Subject(), c
		}
		return nil
	})
	return subject, n, err
}

package worldengine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
)

// NATS does not deliver a message that was changed on its disk, but counts it. Inside a town's history its
// successor tells; at the end of one, nothing that is delivered does.

// unreadable reports the towns, and the world's pause, whose last message is counted and not delivered.
func (f *fsck) unreadable(ctx context.Context) error {
	subjects := map[string]uint64{}
	for _, filter := range []string{logSubject(f.world, "*"), controlSubject(f.world)} {
		info, err := f.log.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, LogStream(f.world), err)
		}
		maps.Copy(subjects, info.State.Subjects)
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		if f.towns[subject].read == subjects[subject] {
			continue
		}
		if err := f.checkLast(ctx, subject); err != nil {
			return err
		}
	}
	return nil
}

// checkLast reports the last message of a subject of the log if it is not delivered.
func (f *fsck) checkLast(ctx context.Context, subject string) error {
	seq, err := f.unreadableLast(ctx, subject)
	if seq == 0 || err != nil {
		return err
	}
	finding := FsckFinding{
		Stream: LogStream(f.world), Sequence: seq, Subject: subject,
		What: "the last message was changed on the disk of NATS, which does not deliver it",
	}
	if subject != controlSubject(f.world) {
		finding.Town = townOfToken(lastToken(subject))
	}
	f.find(finding)
	return nil
}

// unreadableLast returns the sequence of the last message of a subject of the log where it is counted and
// not delivered, and else 0.
func (f *fsck) unreadableLast(ctx context.Context, subject string) (uint64, error) {
	if _, err := f.lastOf(ctx, subject); !errors.Is(err, errUnreadable) {
		return 0, err
	}
	// A consumer that begins with the last message stands before it, though it cannot be delivered.
	consumer, err := f.log.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverLastPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: eachInactive,
	})
	if err != nil {
		return 0, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, LogStream(f.world), err)
	}
	defer follow.Release(f.log, consumer)
	return consumer.CachedInfo().Delivered.Stream + 1, nil
}

// lastToken returns what follows the last dot of a subject.
func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// townOfToken returns the town that a token stands for, or "" where it is a hash of one.
func townOfToken(token string) string {
	id, err := percentDecode(token)
	if err != nil || strings.HasPrefix(token, "=") {
		return ""
	}
	return id
}

package worldengine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/follow"
)

// NATS does not deliver a message that was changed on its disk, but counts it. Inside a town's history its
// successor tells; at the end of one, nothing that is delivered does.

// Unreadable is a history of the log whose last message NATS counts and does not deliver: that of a town, or
// that of the pauses of the world, which has no Town.
type Unreadable struct {
	Town     string `json:"town,omitzero"` // "" too where the id is too long for a subject
	Subject  string `json:"subject"`
	Sequence uint64 `json:"sequence"` // of the last message
}

// FindUnreadable returns the histories of a log that are unreadable, by their subjects. read says how many
// messages of a subject were read: only where it is not as many as NATS counts, it looks. The error is
// ErrLogUnavailable.
func FindUnreadable(
	ctx context.Context, log jetstream.Stream, world string, read func(subject string) uint64,
) (all []Unreadable, err error) {
	subjects, err := subjectsOf(ctx, log, logSubject(world, "*"), controlSubject(world))
	if err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		if read(subject) == subjects[subject] {
			continue
		}
		seq, err := unreadableLast(ctx, log, subject)
		if err != nil {
			return nil, err
		}
		if seq == 0 {
			continue
		}
		found := Unreadable{Subject: subject, Sequence: seq}
		if subject != controlSubject(world) {
			found.Town = townOfToken(lastToken(subject))
		}
		all = append(all, found)
	}
	return all, nil
}

// subjectsTimeout is how long NATS may take to list the subjects of a log: for a million it takes some 20 s.
const subjectsTimeout = 5 * time.Minute

// subjectsOf returns the subjects of a log that match filters, with their numbers of messages.
func subjectsOf(ctx context.Context, log jetstream.Stream, filters ...string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, subjectsTimeout) // in place of the client's 5 s
	defer cancel()
	subjects := map[string]uint64{}
	for _, filter := range filters {
		info, err := log.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, fmt.Errorf("%w: subjects of stream %s: %w", ErrLogUnavailable, log.CachedInfo().Config.Name, err)
		}
		maps.Copy(subjects, info.State.Subjects)
	}
	return subjects, nil
}

// unreadable reports the histories that are unreadable.
func (f *fsck) unreadable(ctx context.Context) error {
	all, err := FindUnreadable(ctx, f.log, f.world, func(subject string) uint64 { return f.towns[subject].read })
	for _, u := range all {
		f.find(FsckFinding{
			Stream: LogStream(f.world), Sequence: u.Sequence, Subject: u.Subject, Town: u.Town,
			What: "the last message was changed on the disk of NATS, which does not deliver it",
		})
	}
	return err
}

// unreadableLast returns the sequence of the last message of a subject of the log where it is counted and
// not delivered, and else 0.
func unreadableLast(ctx context.Context, log jetstream.Stream, subject string) (uint64, error) {
	_, err := lastOrUnreadable(ctx, log, subject)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, errUnreadable) {
		return 0, fmt.Errorf("%w: last message of %s: %w", ErrLogUnavailable, subject, err)
	}
	// A consumer that begins with the last message stands before it, though it cannot be delivered.
	consumer, err := log.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverLastPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: eachInactive,
	})
	if err != nil {
		return 0, fmt.Errorf("%w: last message of %s: %w", ErrLogUnavailable, subject, err)
	}
	defer follow.Release(log, consumer)
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

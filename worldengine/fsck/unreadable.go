package fsck

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// NATS does not deliver a message that was changed on its disk, but counts it. Inside a town's
// history its successor's guard shows that; at the end, no delivered message does.

// Unreadable is a history of the log whose last message NATS counts and does not deliver: a town's,
// or, without Town, the world's pauses.
type Unreadable struct {
	Town     string `json:"town,omitzero"` // "" too where the id is too long for a subject
	Subject  string `json:"subject"`
	Sequence uint64 `json:"sequence"` // of the last message
}

// FindUnreadable returns the unreadable histories of a log, by their subjects. read returns the
// number of messages read of a subject: it looks only if NATS counts another one. The error is
// ErrLogUnavailable.
func FindUnreadable(
	ctx context.Context, log jetstream.Stream, world string, read func(subject string) uint64,
) (all []Unreadable, err error) {
	subjects, err := commitlog.SubjectsOf(ctx, log, wire.LogSubject(world, "*"),
		wire.ControlSubject(world))
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
		if subject != wire.ControlSubject(world) {
			found.Town = townOfToken(lastToken(subject))
		}
		all = append(all, found)
	}
	return all, nil
}

// unreadable reports the histories that are unreadable.
func (c *worldCheck) unreadable(ctx context.Context) ([]Unreadable, error) {
	all, err := FindUnreadable(ctx, c.log, c.world,
		func(subject string) uint64 { return c.towns[subject].read })
	for _, u := range all {
		c.find(Finding{
			Stream: wire.LogStream(c.world), Sequence: u.Sequence, Subject: u.Subject, Town: u.Town,
			What: "the last message was changed on the disk of NATS, which does not deliver it",
		})
	}
	return all, err
}

// unreadableLast returns the sequence of a subject's last message if it is counted and not
// delivered, else 0.
func unreadableLast(ctx context.Context, log jetstream.Stream, subject string) (uint64, error) {
	_, err := commitlog.LastOrUnreadable(ctx, log, subject)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, commitlog.ErrUnreadable) {
		return 0, fmt.Errorf("%w: last message of %s: %w", commitlog.ErrLogUnavailable, subject,
			err)
	}
	// A consumer that begins with the last message stands before it, though it cannot be delivered.
	consumer, err := log.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: subject,
		DeliverPolicy: jetstream.DeliverLastPolicy, AckPolicy: jetstream.AckNonePolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: commitlog.EachInactive,
	})
	if err != nil {
		return 0, fmt.Errorf("%w: last message of %s: %w", commitlog.ErrLogUnavailable, subject,
			err)
	}
	defer commitlog.Release(log, consumer)
	return consumer.CachedInfo().Delivered.Stream + 1, nil
}

// lastToken returns the token behind the last dot of a subject.
func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// townOfToken returns the town of a token, or "" if it is a hash.
func townOfToken(token string) string {
	id, err := wire.PercentDecode(token)
	if err != nil || strings.HasPrefix(token, "=") {
		return ""
	}
	return id
}

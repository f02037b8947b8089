// Package records has the records of the machine in a commit log: how a record is written as a message
// and read from one, the current state of towns, their history, the ends of runs, and how many records
// the log must keep.
package records

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/wire"
)

// Log is a commitlog.Log that reads and writes the records of the machine. Members must be set before the first use.
type Log struct {
	*commitlog.Log
	// Retention is how long a message on a run's own subject is kept.
	Retention time.Duration
	// NewestIndexed, if set, returns the sequence of the newest record of a town that the index has, 0 if it
	// has none. A log that lacks it is damaged.
	NewestIndexed func(townToken string) uint64
	// OnDamaged, if set, is called with the token of a town whose last message is lost or cannot be read,
	// and the ErrTownDamaged.
	OnDamaged func(townToken string, err error)
}

// OpenReader returns the log of a world, for reading only. Its errors are commitlog.OpenLog's.
func OpenReader(ctx context.Context, js jetstream.JetStream, world string) (*Log, error) {
	log, err := commitlog.OpenReader(ctx, js, world)
	if err != nil {
		return nil, err
	}
	return &Log{Log: log}, nil
}

// CommitTown commits a record that changes its town to after, guarded by the sequence of the town's
// last message, and sets after.Seq. Its errors are Encode's and Commit's. If the guard was refused and the last
// message cannot be read, the error is ErrLostRace: to load the town again shows that it is damaged.
func (l *Log) CommitTown(ctx context.Context, rec *machine.Record, after *machine.Town, guard uint64) error {
	msg, err := Encode(rec, layout.LogSubject(l.World, wire.TownToken(rec.TownID)), after)
	if err != nil {
		return err
	}
	seq, err := l.Commit(ctx, msg, guard)
	if errors.Is(err, commitlog.ErrUnreadable) {
		return commitlog.ErrLostRace
	}
	if err != nil {
		return err
	}
	after.Seq = seq
	return nil
}

// CommitAside appends the record of a refused run, or of a signal, to a subject. If judged is not nil,
// the run was judged on its town's state at sequence *judged. If that is not the town's last
// message any more, CommitAside stores nothing and returns ErrLostRace. A duplicate needs no guard: an
// accepted key stays accepted.
func (l *Log) CommitAside(ctx context.Context, rec *machine.Record, subject string, judged *uint64) error {
	msg, err := Encode(rec, subject, nil)
	if err != nil {
		return err
	}
	var guard *commitlog.Guard
	if judged != nil {
		guard = &commitlog.Guard{
			Subject: layout.LogSubject(l.World, wire.TownToken(rec.TownID)), Last: *judged,
		}
	}
	return l.CommitWithID(ctx, msg, msg.Header.Get(wire.RunIDHeader), guard)
}

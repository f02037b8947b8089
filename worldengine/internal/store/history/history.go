// Package history reads the past of a town: the revisions that the log keeps of it, and the state
// after each. It stores nothing.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// ErrRevisionGone means that the log does not keep such a revision of the town, or the town never had it.
var ErrRevisionGone = errors.New("history: the history of the town does not have this " +
	"revision (any more); town.history lists those that are kept")

// readTimeout bounds one reading of a history.
const readTimeout = 10 * time.Second

// Reader reads the history of the towns of a log. It is safe for concurrent use.
type Reader struct{ Log *records.Log }

// Town is a town as one revision left it.
type Town struct {
	machine.Town
	// LastFailure is the last handoff that failed on this state, nil if none did.
	LastFailure *messages.Failure
}

// Visit visits a town's revisions, the newest first, until visit returns false or the log keeps no
// earlier one. If before is above 0, it visits only earlier revisions. It returns town.ErrUnknown
// for a town that does not exist. If a record is unreadable, its revision has only the members from
// the headers.
func (r *Reader) Visit(
	ctx context.Context, townID string, before uint64, visit func(messages.Revision) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	msg, err := r.lastOf(ctx, townID)
	if err == nil && before > 0 && msg.Sequence >= before {
		msg, err = r.Log.TownBefore(ctx, townID, before)
	}
	for err == nil && msg != nil {
		var prior *jetstream.RawStreamMsg
		if prior, err = r.Log.Previous(ctx, msg); err == nil {
			if revision, _ := readRevision(msg, prior); !visit(revision) {
				return nil
			}
		}
		msg = prior
	}
	return err
}

// Last returns a town as it is. It reads the log, and so sees the last commit of any writer. It
// returns town.ErrUnknown if the town does not exist.
func (r *Reader) Last(ctx context.Context, townID string) (Town, error) {
	msg, err := r.lastOf(ctx, townID)
	if err != nil {
		return Town{}, err
	}
	return r.read(ctx, townID, msg)
}

// At returns a town as one of its revisions left it. It returns town.ErrUnknown, or ErrRevisionGone
// if the log has no such revision of the town.
func (r *Reader) At(ctx context.Context, townID string, revision uint64) (Town, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	msg, err := r.Log.At(ctx, revision)
	if err != nil {
		return Town{}, err
	}
	if msg == nil || msg.Subject != layout.LogSubject(r.Log.World, wire.TownToken(townID)) {
		if _, err := r.Last(ctx, townID); err != nil && !errors.Is(err, records.ErrTownDamaged) {
			return Town{}, err
		}
		return Town{}, ErrRevisionGone
	}
	return r.read(ctx, townID, msg)
}

// lastOf returns the last message of a town, or town.ErrUnknown.
func (r *Reader) lastOf(ctx context.Context, townID string) (*jetstream.RawStreamMsg, error) {
	msg, err := r.Log.LastMessage(ctx, townID)
	if err == nil && msg == nil {
		err = unknown(townID)
	}
	return msg, err
}

func unknown(townID string) error { return fmt.Errorf("%w: %q", town.ErrUnknown, townID) }

// read returns the town of a message on its subject.
func (r *Reader) read(
	ctx context.Context, townID string, msg *jetstream.RawStreamMsg,
) (Town, error) {
	entry, err := records.ReadTown(msg)
	if err == nil && entry.Removed != nil {
		err = unknown(townID)
	}
	if err != nil {
		return Town{}, err
	}
	failure, err := r.lastFailure(ctx, msg)
	return Town{entry, failure}, err
}

// readRevision returns the revision that a message made, and the id of its town, "" if the record is
// unreadable. prior is the town's message before it, or nil.
func readRevision(msg, prior *jetstream.RawStreamMsg) (r messages.Revision, townID string) {
	header := msg.Header
	r = messages.Revision{
		Revision: msg.Sequence, At: runevents.Timestamp(commitlog.PersistedAt(msg.Header, msg.Time)),
		Cause: records.KindOf(header).Cause(), RunID: layout.RunIDOf(header),
		Hash: header.Get(layout.HashHeader), Epoch: commitlog.EpochOf(header),
	}
	rec, err := records.Read(msg.Data)
	if err != nil {
		return r, ""
	}
	r.ActorID = rec.ActorID
	var result handoff.Result
	if rec.Result != nil && json.Unmarshal(rec.Result, &result) == nil {
		r.Command, r.Status, r.Reason = result.Command, result.Status, result.ReasonCode
	}
	readRequest(&r, rec)
	if r.ActorID == "" && records.KindOf(header).Spec().EndsCommand && prior != nil {
		// A game had the command: the earlier record, of kind pending, names who asked for the command.
		if pending, err := records.Read(prior.Data); err == nil {
			readRequest(&r, pending)
		}
	}
	return r, rec.TownID
}

// readRequest reads who asked for the revision's run, an agent or an operator, and the command.
// They are in a record's pending handoff, or in the start of its run.
func readRequest(r *messages.Revision, rec *machine.Record) {
	var request jsontext.Value
	switch p := rec.Pending; {
	case p != nil && p.Run.RunID == r.RunID:
		request = p.Handoff
	case rec.Run != nil && rec.Run.RunID == r.RunID:
		for i := range rec.Run.Events {
			if e := &rec.Run.Events[i]; e.EventType == runevents.RunStarted {
				request = e.Payload
			}
		}
	}
	var asked struct {
		ActorID  string `json:"actorId"`
		Command  string `json:"command"`
		Proposal struct {
			ActorID string `json:"actorId"`
		} `json:"proposal"`
	}
	if request != nil && json.Unmarshal(request, &asked) == nil {
		r.ActorID = cmp.Or(asked.ActorID, asked.Proposal.ActorID)
		r.Command = cmp.Or(r.Command, asked.Command)
	}
}

// Bounds of the records, and of their bytes, that lastFailure reads.
const (
	maxBehind      = 256
	maxBehindBytes = 8 << 20
)

// lastFailure returns the last handoff that failed on a town's state at a message; nil if none
// failed since the state changed.
func (r *Reader) lastFailure(
	ctx context.Context, msg *jetstream.RawStreamMsg,
) (*messages.Failure, error) {
	read := 0
	for range maxBehind {
		spec := records.KindOf(msg.Header).Spec()
		if spec.ConsumesKey {
			return failureOf(msg)
		}
		if read += len(msg.Data); !spec.LeavesState || read > maxBehindBytes {
			return nil, nil
		}
		prior, err := r.Log.Previous(ctx, msg)
		if prior == nil || err != nil {
			return nil, err
		}
		msg = prior
	}
	return nil, nil
}

func failureOf(msg *jetstream.RawStreamMsg) (*messages.Failure, error) {
	rec, err := records.Read(msg.Data)
	var result handoff.Result
	if err == nil {
		err = json.Unmarshal(rec.Result, &result)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: log sequence %d: %w", records.ErrTownDamaged,
			msg.Sequence, err)
	}
	if result.Status != handoff.Failed {
		return nil, nil
	}
	return &messages.Failure{
		HandoffID: result.HandoffID, ReasonCode: result.ReasonCode,
		At: runevents.Timestamp(commitlog.PersistedAt(msg.Header, msg.Time)),
	}, nil
}

// NewestWindow is how many of the log's last messages Newest looks at.
const NewestWindow = 500

// Window bounds the revisions that Newest visits; neither bound is included, and 0 is no bound.
type Window struct{ Before, After uint64 }

// Newest visits the changes of all towns in a window, the newest first, until visit returns false.
// It looks at the last NewestWindow messages of the log, and omits damaged ones. The error is
// commitlog.ErrLogUnavailable, or ctx's.
func (r *Reader) Newest(
	ctx context.Context, w Window, visit func(townID string, change messages.Revision) bool,
) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	end, err := r.Log.End(ctx)
	if err != nil {
		return err
	}
	first := max(w.After, end-min(end, NewestWindow))
	if w.Before > 0 {
		end = min(end, w.Before-1)
	}
	for seq := end; seq > first; seq-- {
		msg, err := r.Log.At(ctx, seq)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if msg == nil || !commitlog.IsTownHistory(r.Log.World, msg.Subject) {
			continue
		}
		change, townID := readRevision(msg, nil)
		if townID == "" {
			continue
		}
		if change.ActorID == "" {
			prior, _ := r.Log.Previous(ctx, msg) // a revision without an actor is better than none
			change, _ = readRevision(msg, prior)
		}
		if !visit(townID, change) {
			return nil
		}
	}
	return nil
}

package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Listed is a town as the headers of its last message describe it.
type Listed struct {
	messages.TownSummary
	Token   string
	Pending bool // a command is being applied
}

// Towns returns the towns with tokens, or without any all towns, in the order of their ids' bytes.
// A town whose message is damaged is omitted, and logged.
func (l *Log) Towns(
	ctx context.Context, tokens []string, logger *slog.Logger,
) (all []Listed, err error) {
	subjects := []string{wire.LogSubject(l.World, "*")}
	if tokens != nil {
		subjects = nil
	}
	for _, token := range tokens {
		subjects = append(subjects, wire.LogSubject(l.World, token))
	}
	err = each(ctx, l.Stream, cmp.Or(l.FetchWait, DefaultFetchWait), jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}, func(msg *jetstream.RawStreamMsg) error {
		if msg.Header.Get(wire.RemovedHeader) != "" {
			return nil
		}
		listed, err := l.listed(ctx, msg.Header, msg.Sequence)
		if errors.Is(err, ErrLogUnavailable) {
			return err
		}
		if err != nil { // damage to one town is no reason to show none
			logger.Error("a town cannot be listed", "subject", msg.Subject, "error", err)
			return nil
		}
		listed.Token = wire.LoggedTown(msg.Subject)
		all = append(all, listed)
		return nil
	})
	slices.SortFunc(all, func(a, b Listed) int {
		return cmp.Or(strings.Compare(a.TownID, b.TownID), cmp.Compare(b.Revision, a.Revision))
	})
	return slices.CompactFunc(all, func(a, b Listed) bool { return a.TownID == b.TownID }), err
}

// CountTowns returns the number of towns, removed ones too, without reading them.
func (l *Log) CountTowns(ctx context.Context) (uint64, error) {
	consumer, err := createConsumer(ctx, l.Stream, jetstream.ConsumerConfig{
		FilterSubject: wire.LogSubject(l.World, "*"),
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, HeadersOnly: true,
	})
	if err != nil {
		return 0, fmt.Errorf("%w: consumer of the log: %w", ErrLogUnavailable, err)
	}
	Release(l.Stream, consumer)
	return consumer.CachedInfo().NumPending, nil
}

func (l *Log) listed(ctx context.Context, header nats.Header, seq uint64) (Listed, error) {
	townID, err := l.townIDOf(ctx, header.Get(wire.TownHeader), seq)
	if err != nil {
		return Listed{}, fmt.Errorf("log sequence %d: %w", seq, err)
	}
	epoch, err := strconv.ParseInt(header.Get(wire.EpochHeader), 10, 64)
	if err != nil {
		return Listed{}, fmt.Errorf("log sequence %d: header %s: %w", seq, wire.EpochHeader, err)
	}
	return Listed{TownSummary: messages.TownSummary{
		TownID: townID, SnapshotHash: header.Get(wire.HashHeader), DecisionEpoch: epoch,
		Revision: seq, Apply: header.Get(wire.ApplyHeader),
		Paused: header.Get(wire.PausedHeader) == "true",
	}, Pending: header.Get(wire.PendingHeader) == "true"}, nil
}

// townIDOf returns a log message's town id: from its header, or from its record if the id is too
// long for one.
func (l *Log) townIDOf(ctx context.Context, header string, seq uint64) (string, error) {
	if header != "" {
		return wire.PercentDecode(header)
	}
	msg, err := l.Message(ctx, seq)
	if err != nil {
		return "", err
	}
	rec, err := ReadRecord(msg.Data)
	if err != nil {
		return "", err
	}
	return rec.TownID, nil
}

// EpochOf returns the decision epoch in the headers of a town's message, 0 if they have none.
func EpochOf(header nats.Header) int64 {
	epoch, err := strconv.ParseInt(header.Get(wire.EpochHeader), 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

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

// List returns up to limit towns whose id comes after the given one, in the order of their ids'
// bytes, and whether there are more. A town whose message is damaged is left out, and logged.
func (l *Log) List(
	ctx context.Context, after string, limit int, logger *slog.Logger,
) ([]messages.TownSummary, bool, error) {
	all, err := l.summaries(ctx, logger)
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(all, func(a, b messages.TownSummary) int {
		return cmp.Or(strings.Compare(a.TownID, b.TownID), cmp.Compare(b.Revision, a.Revision))
	})
	all = slices.CompactFunc(all, func(a, b messages.TownSummary) bool { return a.TownID == b.TownID })
	first, _ := slices.BinarySearchFunc(all, after, func(s messages.TownSummary, id string) int {
		if s.TownID <= id && id != "" {
			return -1
		}
		return 1
	})
	rest := all[first:]
	if len(rest) > limit {
		return rest[:limit], true, nil
	}
	return rest, false, nil
}

// summaries reads the headers of every town's last message. A town whose message is damaged is left
// out, and logged.
func (l *Log) summaries(ctx context.Context, logger *slog.Logger) ([]messages.TownSummary, error) {
	var all []messages.TownSummary
	err := each(ctx, l.Stream, cmp.Or(l.FetchWait, DefaultFetchWait), jetstream.ConsumerConfig{
		FilterSubject: wire.LogSubject(l.World,
			"*"), DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	}, func(msg jetstream.Msg, seq uint64) error {
		summary, err := l.summaryOf(ctx, msg.Headers(), seq)
		if errors.Is(err, ErrLogUnavailable) {
			return err
		}
		if err != nil { // damage to one town is no reason to show none
			logger.Error("a town cannot be listed", "subject", msg.Subject(), "error", err)
			return nil
		}
		all = append(all, summary)
		return nil
	})
	return all, err
}

// CountTowns returns how many towns there are, without reading them.
func (l *Log) CountTowns(ctx context.Context) (uint64, error) {
	consumer, err := l.Stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: wire.LogSubject(l.World,
			"*"), DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: EachInactive,
	})
	if err != nil {
		return 0, fmt.Errorf("%w: consumer of the log: %w", ErrLogUnavailable, err)
	}
	Release(l.Stream, consumer)
	return consumer.CachedInfo().NumPending, nil
}

func (l *Log) summaryOf(ctx context.Context, header nats.Header, seq uint64) (messages.TownSummary, error) {
	townID, err := l.townIDOf(ctx, header.Get(wire.TownHeader), seq)
	if err != nil {
		return messages.TownSummary{}, fmt.Errorf("log sequence %d: %w", seq, err)
	}
	epoch, err := strconv.ParseInt(header.Get(wire.EpochHeader), 10, 64)
	if err != nil {
		return messages.TownSummary{}, fmt.Errorf("log sequence %d: header %s: %w", seq, wire.EpochHeader, err)
	}
	return messages.TownSummary{
		TownID: townID, SnapshotHash: header.Get(wire.HashHeader), DecisionEpoch: epoch,
		Revision: seq,
	}, nil
}

// townIDOf returns the town id of a log message: from its header, or from its record where the id
// is too long for one.
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

// EpochOf returns the decision epoch that the headers of a town's message name, 0 where they name
// none.
func EpochOf(header nats.Header) int64 {
	epoch, err := strconv.ParseInt(header.Get(wire.EpochHeader), 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

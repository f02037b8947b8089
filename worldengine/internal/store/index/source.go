package index

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/worldsettings"
)

// smallGap is how many messages are read one by one; to read more, a consumer is faster.
const smallGap = 64

// LogSource returns the Source on a log.
func LogSource(log *commitlog.Log) Source { return &logSource{log: log} }

type logSource struct {
	log   *commitlog.Log
	known atomic.Pointer[cachedLimits]
}

// End implements Source.
func (s *logSource) End(ctx context.Context) (uint64, error) { return s.log.End(ctx) }

// EachAfter implements Source.
func (s *logSource) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) (upTo uint64, err error) {
	end, err := s.End(ctx)
	if err != nil {
		return 0, err
	}
	if s.log.Stream != nil && end > seq+smallGap {
		if seq, err = commitlog.ScanHeaders(ctx, s.log.Stream, seq, func(msg *jetstream.RawStreamMsg) error {
			return visit(msg.Sequence, msg.Subject, msg.Header)
		}); err != nil {
			return 0, err
		}
	}
	for seq < end {
		msg, err := s.next(ctx, seq, end)
		if err != nil {
			return 0, err
		}
		if msg == nil {
			return end, nil
		}
		seq = msg.Sequence
		if err := visit(seq, msg.Subject, msg.Header); err != nil {
			return 0, err
		}
	}
	return seq, nil
}

// If the log seems to end before end, next asks it endTries times, with pauses: NATS also says "not
// found" if it has trouble with its store. After endTries, the rest counts as expired, or changed on
// the disk; the chains of the towns show a record that is missing.
const (
	endTries    = 8
	endInterval = 250 * time.Millisecond
)

// next returns the first message after a sequence, or nil if there is none up to end.
func (s *logSource) next(
	ctx context.Context, seq, end uint64,
) (msg *jetstream.RawStreamMsg, err error) {
	for try := range endTries {
		if try > 0 {
			if err := backoff.Sleep(ctx, endInterval); err != nil {
				return nil, err
			}
		}
		msg, err = s.log.NextBefore(ctx, seq+1, end)
		if msg != nil || err != nil || s.log.Stream == nil {
			break
		}
	}
	return msg, err
}

// Messages implements Source. A log without Stream counts as one that forgot nothing.
func (s *logSource) Messages(ctx context.Context) (uint64, error) {
	if s.log.Stream == nil {
		return s.End(ctx)
	}
	info, err := commitlog.LeaderInfo(ctx, s.log.Stream)
	if err != nil {
		return 0, err
	}
	return info.State.Msgs, nil
}

// Limits implements Source. The configuration of the stream follows the settings of the world, and
// Limits reads each answer of NATS about it once.
func (s *logSource) Limits() Limits {
	if s.log.Stream == nil {
		return Limits{MinHistory: uint64(s.log.HistoryLimit())}
	}
	info := s.log.Stream.CachedInfo()
	if known := s.known.Load(); known != nil && known.info == info {
		return known.limits
	}
	stored := worldsettings.ReadStreamConfig(info.Config)
	limits := Limits{uint64(max(stored.MinHistory, 0)), stored.RestoredTo}
	s.known.Store(&cachedLimits{info, limits})
	return limits
}

type cachedLimits struct {
	info   *jetstream.StreamInfo
	limits Limits
}

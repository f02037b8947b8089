package commitlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/layout"
)

// errNoLeader: another node than the leader answered for a stream, or the leader is cut off. If a
// group has no leader, NATS lets any of its nodes answer, from a state that may be old.
var errNoLeader = errors.New("the stream has no leader with a majority of its nodes")

// Bounds of LeaderInfo. A node calls an election if it has not heard its leader for leaderTimeout.
const (
	leaderTimeout  = 4 * time.Second
	leaderTries    = 8
	leaderInterval = 100 * time.Millisecond
)

// LeaderInfo returns the state of a stream as its leader has it. It waits a little for an election.
// The error is ErrLogUnavailable, also if a node answers that does not lead a majority: what such a
// node says of the stream's end proves nothing.
func LeaderInfo(
	ctx context.Context, stream jetstream.Stream, options ...jetstream.StreamInfoOpt,
) (*jetstream.StreamInfo, error) {
	var failure error
	tries := tryTimeout{firstAnswerTimeout, answerTimeout}
	for range leaderTries {
		var info *jetstream.StreamInfo
		_, err := tries.ask(ctx, func(ctx context.Context) (err error) {
			info, err = stream.Info(ctx, options...)
			return err
		})
		if err == nil && isLeader(info) {
			return info, nil
		}
		if failure = errNoLeader; err != nil {
			failure = err
		}
		if err != nil && !isTransient(err) || backoff.Sleep(ctx, leaderInterval) != nil {
			break
		}
	}
	return nil, fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable,
		stream.CachedInfo().Config.Name, failure)
}

// ElectionSubject returns the subject on which NATS says that a node has come to lead the log of a world. Nobody
// who was away meanwhile gets such a message.
func ElectionSubject(world string) string {
	return "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED." + layout.LogStream(world)
}

// Leader returns the node that led the log at its last answer; "" if the log has one replica, or no
// leader.
func (l *Log) Leader() string {
	if l.Stream == nil {
		return ""
	}
	if info := l.Stream.CachedInfo(); info.Cluster != nil && info.Config.Replicas > 1 && isLeader(info) {
		return info.Cluster.Leader
	}
	return ""
}

// LeaderID returns another text for each election of the log's leader.
func (l *Log) LeaderID() string {
	node := l.Leader()
	if node == "" {
		return ""
	}
	if since := l.Stream.CachedInfo().Cluster.LeaderSince; since != nil {
		node += since.Format(time.RFC3339Nano)
	}
	return node
}

// isLeader reports whether the node that answered leads its group and has just heard a majority of it.
// The leader is not among its own replicas. A node that it has never heard is active since 0.
func isLeader(info *jetstream.StreamInfo) bool {
	if info.Cluster == nil || info.Config.Replicas <= 1 {
		return true
	}
	heard, leader := 1, info.Cluster.Leader
	for _, node := range info.Cluster.Replicas {
		if !node.Offline && 0 < node.Active && node.Active < leaderTimeout {
			heard++
		}
	}
	other := slices.ContainsFunc(info.Cluster.Replicas, func(node *jetstream.PeerInfo) bool {
		return node.Name == leader
	})
	return leader != "" && !other && 2*heard > info.Config.Replicas
}

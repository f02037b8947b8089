package backup

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/fsck"
)

// DroppedMessages names messages of the log: all on Subject with a lower sequence than Before. The log dropped
// them during the copy, but the copy has some of them. A restore removes these from the restored
// log.
type DroppedMessages struct {
	Subject string `json:"subject"`
	Before  uint64 `json:"before"`
}

// logCopy is the copied part of a log.
type logCopy struct {
	*commitlog.Log // opened before the copy began
	// messages has the number of messages of each history, and first the sequence of the history's
	// first message.
	messages, first map[string]uint64
}

// visit notes a message of the copy.
func (l *logCopy) visit(entry *archive.Header, _ io.Reader) error {
	if commitlog.IsHistory(l.World, entry.Name) {
		if l.messages[entry.Name]++; l.messages[entry.Name] == 1 {
			l.first[entry.Name] = entry.Sequence
		}
	}
	return nil
}

// checkLog requires that the copy of the log has every town. It notes in the manifest the messages
// that the log dropped during the copy, and the unreadable histories.
func (m *Manifest) checkLog(ctx context.Context, l *logCopy) (err error) {
	if m.Dropped, err = l.dropped(ctx); err == nil && m.Streams[0].Messages != m.Streams[0].atStart {
		m.Unreadable, _, err = fsck.FindUnreadable(ctx, l.Log,
			func(subject string) uint64 { return l.messages[subject] })
	}
	return err
}

// dropped returns the messages that the copy has and the log dropped. It returns ErrOverwritten if the
// log dropped all messages that a town had at the start: the copy may then lack the town, or have
// an older state of it.
func (l *logCopy) dropped(ctx context.Context) (all []DroppedMessages, err error) {
	begin := l.Stream.CachedInfo()
	history := begin.Config.MaxMsgsPerSubject
	if history <= 0 {
		return nil, nil
	}
	commits := map[string]int64{}
	_, err = commitlog.ScanHeaders(ctx, l.Stream, begin.State.LastSeq, func(msg *jetstream.RawStreamMsg) error {
		if commitlog.IsHistory(l.World, msg.Subject) {
			commits[msg.Subject]++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(commits)) {
		oldest, err := l.Next(ctx, subject, 1)
		if err != nil {
			return nil, err
		}
		first := l.first[subject]
		dropped := oldest != nil && 0 < first && first < oldest.Sequence
		// More commits may have come since they were counted.
		if commits[subject] >= history || dropped && oldest.Sequence > begin.State.LastSeq {
			return nil, fmt.Errorf("%w: %s got %d commits meanwhile, and so many are kept "+
				"(--history-per-town)", ErrOverwritten, subject, history)
		}
		if dropped {
			all = append(all, DroppedMessages{subject, oldest.Sequence})
		}
	}
	return all, nil
}

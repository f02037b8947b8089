package backup

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
)

// Left names messages of the log: all on Subject with a lower sequence than Before. The log dropped
// them during the copy, but the copy has some of them. A restore removes these from the restored
// log.
type Left struct {
	Subject string `json:"subject"`
	Before  uint64 `json:"before"`
}

// holes finds the holes of the histories in a copy of the log. Each message of a history is guarded
// by the sequence of the message before it. If the copy lacks that message, it has a hole.
type holes struct {
	world     string
	histories map[string]copied // by subject
	found     []hole
}

// copied is the copied part of a history: the number of its messages, and the last one's sequence.
type copied struct{ messages, last uint64 }

// hole is a place in a history at which the copy lacks messages. before and after are the sequences
// of the messages around it.
type hole struct {
	subject       string
	before, after uint64
}

// visit checks the next message of the copy.
func (h *holes) visit(entry *archive.Header, content io.Reader) error {
	if !commitlog.IsHistory(h.world, entry.Name) {
		return nil
	}
	history := h.histories[entry.Name]
	before := history.last
	h.histories[entry.Name] = copied{history.messages + 1, entry.Sequence}
	if before == 0 {
		return nil // the history begins here
	}
	header, err := headersOf(entry, content)
	if err != nil {
		return err
	}
	if guard, _ := commitlog.GuardOf(header); guard > before {
		h.found = append(h.found, hole{entry.Name, before, entry.Sequence})
	}
	return nil
}

// checkLog requires that the copy of the log has every town. It notes in the manifest the messages
// that the log dropped, and the unreadable histories. log must have been opened before the copy.
func (m *Manifest) checkLog(ctx context.Context, log *commitlog.Log, found *holes) error {
	err := checkHistory(ctx, log)
	if err == nil {
		m.Left, err = found.left(ctx, log)
	}
	if err == nil && m.Streams[0].Messages != m.Streams[0].held {
		m.Unreadable, _, err = fsck.FindUnreadable(ctx, log, func(subject string) uint64 {
			return found.histories[subject].messages
		})
	}
	return err
}

// checkHistory returns ErrOutrun if the log dropped during the copy all messages that a town had at
// the start. The copy may then lack the town, or have an older state of it. log must have been
// opened at the start.
func checkHistory(ctx context.Context, log *commitlog.Log) error {
	begin := log.Stream.CachedInfo().State.LastSeq
	info, err := log.Stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("state of the log: %w", err)
	}
	history := info.Config.MaxMsgsPerSubject
	if history <= 0 || info.State.LastSeq-begin < uint64(history) {
		return nil
	}
	commits := map[string]int64{}
	return commitlog.Each(ctx, log.Stream, begin, func(msg *jetstream.RawStreamMsg) error {
		if !commitlog.IsHistory(log.World, msg.Subject) {
			return nil
		}
		if commits[msg.Subject]++; commits[msg.Subject] >= history {
			return fmt.Errorf("%w: %s got %d commits meanwhile, and so many are kept "+
				"(--history-per-town)", ErrOutrun, msg.Subject, history)
		}
		return nil
	})
}

// left returns the messages that the log dropped during the copy: in each history, all before its
// last hole of this kind. A history drops its oldest messages first. So if the message before a
// hole still exists, the hole is damage, which the log has too.
func (h *holes) left(ctx context.Context, log *commitlog.Log) ([]Left, error) {
	var all []Left
	for _, at := range h.found {
		msg, err := log.At(ctx, at.before)
		if err != nil {
			return nil, err
		}
		if msg != nil {
			continue
		}
		i := slices.IndexFunc(all, func(l Left) bool { return l.Subject == at.subject })
		if i < 0 {
			i, all = len(all), append(all, Left{Subject: at.subject})
		}
		all[i].Before = at.after
	}
	return all, nil
}

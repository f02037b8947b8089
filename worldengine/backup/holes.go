package backup

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
)

// Left names the messages of a subject of the log before a sequence. They left its history during
// the copy, though the copy has some of them. A restore removes those.
type Left struct {
	Subject string `json:"subject"`
	Before  uint64 `json:"before"`
}

// holes finds the gaps of a history in the log's copy: each message there is guarded by the
// sequence of the one before it. It keeps two numbers for each town.
type holes struct {
	world     string
	messages  uint64            // all of the copy
	histories map[string]copied // by subject
	found     []hole
}

// copied is a history's copied part: the number of messages, and the last one's sequence.
type copied struct{ messages, last uint64 }

// hole is a gap in a history between two existing messages.
type hole struct {
	subject        string
	before, behind uint64
}

// visit checks the next message of the copy.
func (h *holes) visit(entry *archive.Header, content io.Reader) error {
	h.messages++
	if !commitlog.IsHistory(h.world, entry.Name) {
		return nil
	}
	history := h.histories[entry.Name]
	before := history.last
	h.histories[entry.Name] = copied{history.messages + 1, entry.Sequence}
	if before == 0 {
		return nil // the history begins here
	}
	data, err := io.ReadAll(io.LimitReader(content, entry.HeaderSize))
	if err != nil {
		return err
	}
	header, err := nats.DecodeHeadersMsg(data)
	if err != nil {
		return nil // no commit of an engine
	}
	guard, err := strconv.ParseUint(header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if err == nil && guard > before {
		h.found = append(h.found, hole{entry.Name, before, entry.Sequence})
	}
	return nil
}

// unreadable returns the histories whose last message NATS cannot read, if the copy lacks any of so
// many messages.
func (h *holes) unreadable(
	ctx context.Context, log jetstream.Stream, messages uint64,
) ([]fsck.Unreadable, error) {
	if h.messages == messages {
		return nil, nil
	}
	return fsck.FindUnreadable(ctx, log, h.world, func(subject string) uint64 {
		return h.histories[subject].messages
	})
}

// left returns the messages that left the log during the copy, up to the last such hole of each
// history. A history drops its oldest messages first, so the message before a hole has left it too;
// if it still exists, the hole is damage, in the copy as in the world.
func (h *holes) left(ctx context.Context, log jetstream.Stream) ([]Left, error) {
	var all []Left
	place := map[string]int{} // in all, by subject
	for _, at := range h.found {
		msg, err := commitlog.StreamStore{Stream: log}.At(ctx, at.before)
		if err != nil {
			return nil, fmt.Errorf("log sequence %d: %w", at.before, err)
		}
		if msg != nil {
			continue
		}
		i, known := place[at.subject]
		if !known {
			i, all = len(all), append(all, Left{Subject: at.subject})
			place[at.subject] = i
		}
		all[i].Before = at.behind
	}
	return all, nil
}

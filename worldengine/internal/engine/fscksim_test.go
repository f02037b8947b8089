package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/fsck"
)

// fsck checks a simulation's log: whatever the engines went through, fsck.Run finds nothing, nor in
// the part that a short history, or the expiry of run records, leaves. The seed decides which part.
func (s *sim) fsck() {
	if s.short() {
		s.fsckOf("the history", s.log.newest(s.log.keeps))
		return
	}
	s.fsckOf("all", s.log.messages)
	switch view := int(s.seed % 6); view {
	case 0:
	case 5:
		half := uint64(len(s.log.messages) / 2)
		left := slices.DeleteFunc(slices.Clone(s.log.messages), func(m *simMessage) bool {
			return m.seq <= half && strings.HasPrefix(m.subject, layout.RunSubject("main", ""))
		})
		s.fsckOf("expired run records", left)
	default:
		s.fsckOf("a history of "+fmt.Sprint(view), s.log.newest(view))
	}
}

func (s *sim) fsckOf(what string, messages []*simMessage) {
	kept := map[uint64]*jetstream.RawStreamMsg{}
	for _, m := range messages {
		kept[m.seq] = m.raw()
	}
	l := fsck.NewLogChecker("main", func(seq uint64) (*jetstream.RawStreamMsg, error) {
		return kept[seq], nil
	})
	for _, m := range messages {
		found, err := l.Check(kept[m.seq])
		s.must(err == nil, "fsck of %s: %v", what, err)
		for _, f := range found {
			s.must(false, "fsck of %s, log sequence %d: %s: want %s, got %s", what, f.Sequence,
				f.What, f.Want, f.Got)
		}
	}
}

// newest returns the last messages of each subject, at most keep.
func (l *simLog) newest(keep int) []*simMessage {
	var left []*simMessage
	count := map[string]int{}
	for _, m := range slices.Backward(l.messages) {
		if count[m.subject]++; count[m.subject] <= keep {
			left = append(left, m)
		}
	}
	slices.Reverse(left)
	return left
}

package backup

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Compare compares a stream of a backup with a restored one that has so many messages.
func Compare(dir string, s *Stream, maxAge time.Duration, messages uint64) error {
	r := &restore{dir: dir}
	return r.compare(s, maxAge, &jetstream.StreamState{Msgs: messages, LastSeq: s.LastSeq})
}

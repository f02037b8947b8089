package backup

import "time"

// Compare compares a stream of a backup with a restored one that has so many messages.
func Compare(dir string, s *Stream, maxAge time.Duration, messages uint64) error {
	r := &restore{dir: dir}
	return r.compare(s, maxAge, &state{Messages: messages, LastSeq: s.LastSeq})
}

package backoff

import (
	"sync/atomic"
	"time"
)

// seldomEvery is how often a Seldom is ready.
const seldomEvery = 10 * time.Second

// Seldom lets one of many through every 10 s: of the warnings about one trouble that many meet,
// again and again. Its zero value is ready. It is safe for concurrent use.
type Seldom struct{ last atomic.Pointer[time.Time] }

// Ready reports whether it is time for the next one.
func (s *Seldom) Ready() bool {
	now, last := time.Now(), s.last.Load()
	return (last == nil || now.Sub(*last) >= seldomEvery) && s.last.CompareAndSwap(last, &now)
}

package alerts

import (
	"sync"

	"worldengine/runevents"
)

// Backlog keeps the alerts that could not be stored when their Alerts was closed, such as the one
// about a disk that was full. The process's next Alerts of the same log stores them. Its zero value is
// empty.
type Backlog struct {
	mu       sync.Mutex
	identity string // of the log of the world that the alerts are about
	alerts   []runevents.Alert
}

// keep adds an alert of the world whose log has an identity. It returns false if there is no backlog or
// no room.
func (b *Backlog) keep(identity string, alert *runevents.Alert) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.identity != identity {
		b.identity, b.alerts = identity, nil
	}
	if len(b.alerts) == queueSize {
		return false
	}
	b.alerts = append(b.alerts, *alert)
	return true
}

// drain empties the backlog, and returns its alerts in their order, unless they are about a world whose
// log had another identity.
func (b *Backlog) drain(identity string) []runevents.Alert {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	alerts := b.alerts
	b.alerts = nil
	if b.identity != identity {
		return nil
	}
	return alerts
}

package alerts

import (
	"sync"

	"worldengine/runevents"
)

// Backlog keeps the alerts that could not be stored when their Alerts was closed, such as the one
// about a disk that was full. The process's next Alerts stores them. Its zero value is empty.
type Backlog struct {
	mu     sync.Mutex
	alerts []runevents.Alert
}

// keep adds an alert. It returns false if there is no backlog or no room.
func (b *Backlog) keep(alert *runevents.Alert) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.alerts) == maxWaiting {
		return false
	}
	b.alerts = append(b.alerts, *alert)
	return true
}

// drain empties the backlog, and returns its alerts in their order.
func (b *Backlog) drain() []runevents.Alert {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	alerts := b.alerts
	b.alerts = nil
	return alerts
}

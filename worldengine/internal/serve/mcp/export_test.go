package mcp

import "worldengine/handoff"

// AddOpen makes a handoff an open proposal of the session.
func (m *Tools) AddOpen(h *handoff.Handoff) {
	p := &h.Proposal
	m.Open.add(m.nameOf(p.TownID, p.Type, p.Argument()), h)
}

// Following returns the ids of the towns that sessions have subscribed to.
func (m *Tools) Following() (towns []string) {
	m.Towns.mu.Lock()
	defer m.Towns.mu.Unlock()
	for id := range m.Towns.open {
		towns = append(towns, id)
	}
	return towns
}

package webhook

import (
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// gatherTime is how long an alert about a town waits for alerts of other towns: when a game server ends,
// all its towns lose their plugin.
const gatherTime = 5 * time.Second

// gathers reports whether alerts of several towns may have one cause.
func gathers(alert *runevents.Alert) bool {
	return alert.TownID != "" &&
		(alert.Code == runevents.PluginAbsent || alert.Code == runevents.PluginReturned)
}

// gather keeps an alert until gatherTime after the first one of its code.
func (s *Sender) gather(alert runevents.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gathered[alert.Code] = append(s.gathered[alert.Code], alert); len(s.gathered[alert.Code]) == 1 {
		time.AfterFunc(s.wait, func() { s.postGathered(alert.Code) })
	}
}

// postGathered posts the gathered alerts of a code as one message.
func (s *Sender) postGathered(code runevents.AlertCode) {
	s.mu.Lock()
	alerts := s.gathered[code]
	delete(s.gathered, code)
	s.mu.Unlock()
	if len(alerts) == 0 { // Close was faster
		return
	}
	first, towns := &alerts[0], make([]string, len(alerts))
	for i := range alerts {
		towns[i] = alerts[i].TownID
	}
	m := s.messageOf(first)
	if len(towns) > 1 {
		m.Towns = towns
		m.Text = fmt.Sprintf("%s %s in world %s, %d towns (%s): %s", first.Severity, code,
			s.config.World, len(towns), wire.Names(towns, len(towns)), first.Message)
	}
	s.post(m)
}

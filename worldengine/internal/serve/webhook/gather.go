package webhook

import (
	"fmt"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/phrase"
)

// gatherDelay is how long an alert about a town waits for alerts of other towns: when a game server ends,
// all its towns lose their plugin.
const gatherDelay = 5 * time.Second

// gathers reports whether alerts of several towns may have one cause.
func gathers(alert *runevents.Alert) bool {
	return alert.TownID != "" &&
		(alert.Code == runevents.PluginAbsent || alert.Code == runevents.PluginReturned)
}

// group is a world's alerts with one code.
type group struct {
	world string
	code  runevents.AlertCode
}

// gather keeps an alert until gatherDelay after the first one of its group.
func (w *WorldSender) gather(alert runevents.Alert) {
	s, alike := w.sender, group{w.name, alert.Code}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gathered[alike] = append(s.gathered[alike], alert); len(s.gathered[alike]) == 1 {
		time.AfterFunc(s.wait, func() { s.postGathered(alike) })
	}
}

// postGathered posts the gathered alerts of a group as one message.
func (s *Sender) postGathered(alike group) {
	s.mu.Lock()
	alerts := s.gathered[alike]
	delete(s.gathered, alike)
	s.mu.Unlock()
	if len(alerts) == 0 { // Close was faster
		return
	}
	first, towns := &alerts[0], make([]string, len(alerts))
	for i := range alerts {
		towns[i] = alerts[i].TownID
	}
	m := messageOf(alike.world, first)
	if len(towns) > 1 {
		m.Towns = towns
		m.Text = fmt.Sprintf("%s %s in world %s, %d towns (%s): %s", first.Severity,
			alike.code, alike.world, len(towns), phrase.List(towns, len(towns)), first.Message)
	}
	s.post(m)
}

package worldengine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/apply"
)

// absences are the towns that had no plugin when this instance last asked for one.
type absences struct {
	// recalled is closed when recallAbsences has read the stream of alerts; nil where it does not run.
	recalled chan struct{}

	mu    sync.Mutex
	towns map[string]*absence
}

type absence struct {
	since time.Time // by the clock of the producer
	began time.Time // by the machine's
	told  bool      // PLUGIN_ABSENT was raised: once for an absence
}

// since returns since when a town has had no plugin; zero where it had one.
func (s *absences) since(townID string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.towns[townID]; a != nil {
		return a.since
	}
	return time.Time{}
}

func (s *absences) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.towns)
}

// begin notes that a town has no plugin, and returns since when, and whether to tell: once, when it has been
// so for a while, or at once.
func (s *absences) begin(townID string, now time.Time, after time.Duration) (since time.Time, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.towns[townID]
	if a == nil {
		if s.towns == nil {
			s.towns = map[string]*absence{}
		}
		a = &absence{since: now, began: time.Now()}
		s.towns[townID] = a
	}
	tell = !a.told && time.Since(a.began) >= after
	a.told = a.told || tell
	return a.since, tell
}

// end notes that a town has a plugin, and returns since when it had none, and whether that was told.
func (s *absences) end(townID string) (since time.Time, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.towns[townID]
	if a == nil {
		return time.Time{}, false
	}
	delete(s.towns, townID)
	return a.since, a.told
}

// sighted takes in that a plugin replied to a request, or that NATS found none subscribed, and whether the
// attempt is over. PLUGIN_ABSENT is raised when the town has had none for Policy.Resend, or when that ends an
// attempt: a plugin that only reconnects is no alert.
func (e *Engine) sighted(ctx context.Context, a *application, absent, over bool) {
	if e.absent.recalled != nil {
		select {
		case <-e.absent.recalled:
		case <-ctx.Done():
			return
		}
	}
	about := func(code runevents.AlertCode, since time.Time, message string) {
		alert := e.applyAlert(code, a.runID, a.Handoff.HandoffID, message)
		alert.TownID, alert.Since = a.town, runevents.Timestamp(since)
		e.alerts.Raise(alert) // not by raise: a run may find more absences than one
	}
	if !absent {
		if since, told := e.absent.end(a.town); told {
			about(runevents.PluginReturned, since, fmt.Sprintf(
				"Town %q has a plugin again, after it had none since %s.", a.town, runevents.Timestamp(since)))
		}
		return
	}
	after := e.config.Plugin.Resend
	if over {
		after = 0
	}
	if since, tell := e.absent.begin(a.town, e.config.Now(), after); tell {
		about(runevents.PluginAbsent, since, fmt.Sprintf(
			"Town %q has had no plugin since %s; commands in hand: %d. %s Start the game server, or check that its "+
				"plugin serves this town.", a.town,
			runevents.Timestamp(since), 1+len(e.queue.Items(a.town)), fates[e.config.Plugin.Absent]))
	}
}

// needsNoPlugin ends the absence of a plugin of a town that is bound to something else now.
func (e *Engine) needsNoPlugin(townID string) {
	since, told := e.absent.end(townID)
	if !told {
		return
	}
	alert := e.applyAlert(runevents.PluginReturned, "", "", fmt.Sprintf(
		"Town %q needs no plugin any more: it was bound to something else. It had none since %s.", townID, runevents.Timestamp(since)))
	alert.TownID, alert.Since = townID, runevents.Timestamp(since)
	e.alerts.Raise(alert)
}

// fates say what becomes of the commands of a town that has no plugin.
var fates = map[apply.Absent]string{
	apply.AbsentFail: "Each fails with PLUGIN_UNAVAILABLE when its attempts are over.",
	apply.AbsentWait: "They wait until a plugin subscribes.",
}

// recalledAlerts is how many of the latest alerts an instance looks through at its start.
const recalledAlerts = 1000

// recallTimeout bounds how long commands wait for that.
const recallTimeout = 5 * time.Second

// recallAbsences takes from the stream of alerts which towns had no plugin when the servers before this one
// ended: that is not told again, but its end is.
func (e *Engine) recallAbsences(ctx context.Context) {
	defer close(e.absent.recalled)
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	page, err := e.alerts.List(ctx, 0, recalledAlerts)
	if err != nil {
		if ctx.Err() == nil {
			e.config.Logger.Warn("the alerts cannot be read: that a plugin is absent may be told again", "error", err)
		}
		return
	}
	known := map[string]bool{}
	for i := range page.Alerts { // the newest first
		alert := &page.Alerts[i].Alert
		of := alert.Code == runevents.PluginAbsent || alert.Code == runevents.PluginReturned
		if !of || alert.TownID == "" || known[alert.TownID] {
			continue
		}
		known[alert.TownID] = true
		since, err := time.Parse(time.RFC3339Nano, cmp.Or(alert.Since, alert.At)) // earlier versions have no since
		if alert.Code == runevents.PluginAbsent && err == nil {
			e.absent.recall(alert.TownID, since)
		}
	}
}

// recall notes that a town has had no plugin, and that this was told.
func (s *absences) recall(townID string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.towns == nil {
		s.towns = map[string]*absence{}
	}
	s.towns[townID] = &absence{since: since, began: time.Now(), told: true}
}

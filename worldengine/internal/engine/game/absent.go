package game

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/messages"
)

// Absences holds the towns whose game, a plugin or a console, was absent at this writer's last
// request. It raises PLUGIN_ABSENT and PLUGIN_RETURNED once for an absence, even if servers end in
// between. Absences is safe for concurrent use.
type Absences struct {
	now      func() time.Time
	policy   apply.RetryPolicy
	alerts   Alerts
	logger   *slog.Logger
	recalled sync.Once

	mu    sync.Mutex
	towns map[string]*absence
}

type absence struct {
	since      time.Time // by the clock of the alerts
	localSince time.Time // by this computer's clock; zero if another server raised the alert
	raised     bool      // PLUGIN_ABSENT was raised
	// wait is the wait of a command for the game; zero unless the last request reached nobody.
	wait messages.AbsentPlugin
}

func newAbsences(now func() time.Time, config *Config) *Absences {
	return &Absences{
		now: now, policy: config.Retry, alerts: config.Alerts, logger: config.Logger,
		towns: map[string]*absence{},
	}
}

// StartOf returns the time at which a town lost its game; zero if it has one.
func (s *Absences) StartOf(townID string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.towns[townID]; a != nil {
		return a.since
	}
	return time.Time{}
}

// Towns returns the towns without a game, each with the start of its absence.
func (s *Absences) Towns() map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	towns := map[string]time.Time{}
	for townID, a := range s.towns {
		towns[townID] = a.since
	}
	return towns
}

// AbsenceOf returns the absence of a town's game, nil if there is none.
func (s *Absences) AbsenceOf(townID string) *messages.AbsentPlugin {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.towns[townID]
	if a == nil {
		return nil
	}
	absent := a.wait
	absent.TownID, absent.Since = townID, runevents.Timestamp(a.since)
	absent.Todo = protocol.LookupAlert(runevents.PluginAbsent).Todo
	return &absent
}

// prospects has, for each policy, the future of the commands of a town without a game.
var prospects = map[apply.AbsencePolicy]string{
	apply.AbsenceFail: "Each fails with PLUGIN_UNAVAILABLE when its attempts are over.",
	apply.AbsenceWait: "They wait until the game is back.",
}

// NoteAbsent notes that a command found no game. commands is the number of the town's commands in
// hand. If over is set, the absence ends an attempt, and the alert is raised at once. Otherwise the
// alert is raised when the absence has lasted for AbsenceAlertDelay, since the game may only be
// reconnecting.
func (s *Absences) NoteAbsent(ctx context.Context, of alerts.About, commands int, over bool) {
	s.Recall(ctx)
	s.mu.Lock()
	a := s.towns[of.TownID]
	if a == nil {
		a = &absence{since: s.now(), localSince: time.Now()}
		s.towns[of.TownID] = a
	}
	raise := !a.raised && (over || time.Since(a.localSince) >= s.policy.AbsenceAlertDelay())
	a.raised = a.raised || raise
	s.mu.Unlock()
	if raise {
		s.alerts.Raise(alerts.GameAbsent.AlertSince(of, a.since, "{commands}",
			strconv.Itoa(commands), "{prospect}", prospects[s.policy.Absence]))
	}
}

// ClearWait records that no command waits for an absent game: the last request may have arrived, or there is no
// command any more.
func (s *Absences) ClearWait(townID string) { s.NoteWait(townID, messages.AbsentPlugin{}) }

// NoteWait notes how a command waits for an absent game.
func (s *Absences) NoteWait(townID string, waits messages.AbsentPlugin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.towns[townID]; a != nil {
		a.wait = waits
	}
}

// NotePresent notes that a game replied to a request.
func (s *Absences) NotePresent(ctx context.Context, of alerts.About) {
	s.Recall(ctx)
	s.end(of, alerts.GameReturned)
}

// NoteUnneeded ends the absence of a town that was removed or bound to something else.
func (s *Absences) NoteUnneeded(townID string) {
	s.end(alerts.About{TownID: townID}, alerts.GameNotNeeded)
}

// end ends the absence of a town. It raises an alert if the absence raised PLUGIN_ABSENT.
func (s *Absences) end(of alerts.About, text alerts.Template) {
	s.mu.Lock()
	a := s.towns[of.TownID]
	delete(s.towns, of.TownID)
	s.mu.Unlock()
	if a != nil && a.raised {
		s.alerts.Raise(text.AlertSince(of, a.since))
	}
}

// recallTimeout bounds Recall, for which commands wait.
const recallTimeout = 5 * time.Second

// Recall reads, once, which absences earlier servers have left in the stream of alerts. For these
// absences PLUGIN_ABSENT is not raised again; PLUGIN_RETURNED is raised when they end.
func (s *Absences) Recall(ctx context.Context) {
	s.recalled.Do(func() {
		bounded, cancel := context.WithTimeout(ctx, recallTimeout)
		defer cancel()
		raised, err := s.alerts.All(bounded)
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("the alerts cannot be read: PLUGIN_ABSENT may be raised again for a known "+
				"absence", "error", err)
		}
		s.restore(raised)
	})
}

// restore adds the absences that earlier alerts report, the oldest first. The newest alert of a town
// decides.
func (s *Absences) restore(raised []messages.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range raised {
		alert := &raised[i].Alert
		since, err := time.Parse(time.RFC3339Nano, alert.Since)
		switch {
		case alert.TownID == "" || err != nil: // of another server's version
		case alert.Code == runevents.PluginAbsent:
			s.towns[alert.TownID] = &absence{since: since, raised: true}
		case alert.Code == runevents.PluginReturned:
			delete(s.towns, alert.TownID)
		}
	}
}

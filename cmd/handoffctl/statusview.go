package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"worldengine/cmd/internal/counted"
	"worldengine/runevents"
	"worldengine/worldengine/messages"
)

// printWorldStatus prints the state of a world for people.
func (a *app) printWorldStatus(s *worldStatus) error {
	return a.printTable(func(w io.Writer) {
		fmt.Fprintf(w, "world\t%s\n", show(s.World))
		if _, unknown := s.Unknown["pause"]; !unknown {
			a.printPause(w, &s.Control)
		}
		health := a.coloured("good", good)
		if !s.Healthy {
			health = a.coloured("needs attention", bad)
		}
		fmt.Fprintf(w, "health\t%s\n", health)
		for _, problem := range s.Problems {
			fmt.Fprintf(w, "problem\t%s\n", problem)
		}
		fmt.Fprintf(w, "towns\t%d\n", s.Towns)
		for _, t := range s.TownsPaused {
			text := fmt.Sprintf("%s, by %s since %s: %s", show(t.TownID), show(t.ActorID),
				t.Since.Format(time.RFC3339), orDash(t.Reason))
			fmt.Fprintf(w, "paused town\t%s\n", a.coloured(text, warn))
		}
		for _, t := range s.TownsPending {
			fmt.Fprintf(w, "applying\tto %s, run %s\n", show(t.TownID), a.briefID(t.RunID))
		}
		a.printServers(w, s)
		a.printAlerts(w, s)
		if _, unknown := s.Unknown["streams"]; !unknown {
			fmt.Fprintf(w, "dead letters\t%d\n", s.DeadLetters)
			fmt.Fprintf(w, "disk\t%s in the streams of the world, before compression\n",
				size(s.StreamBytes))
		}
		if of := s.fullest(); of != nil {
			tone := plain
			if of.Stats.Disk.Low() {
				tone = bad
			}
			text := fmt.Sprintf("%s of %s", size(of.Stats.Disk.Free), size(of.Stats.Disk.Total))
			fmt.Fprintf(w, "disk free\t%s\n", a.coloured(text, tone))
		}
		for _, part := range slices.Sorted(maps.Keys(s.Unknown)) {
			fmt.Fprintf(w, "not known\t%s: %s\n", part, s.Unknown[part])
		}
	})
}

// printPause prints what control.get says.
func (a *app) printPause(w io.Writer, r *messages.Control) {
	tone := good
	if r.Status == messages.Paused {
		tone = warn
	}
	fmt.Fprintf(w, "status\t%s\n", a.coloured(show(strings.TrimSpace(r.Status+" "+r.Substatus)),
		tone))
	fmt.Fprintf(w, "applying\t%d\n", r.Applying)
	if by := r.PausedBy; by != nil {
		fmt.Fprintf(w, "paused by\t%s\n", show(by.ActorID))
		fmt.Fprintf(w, "since\t%s\n", by.At.Format(time.RFC3339))
		fmt.Fprintf(w, "reason\t%s\n", orDash(by.Reason))
		fmt.Fprintf(w, "signal\t%s\n", show(by.SignalID))
	}
}

func (a *app) printServers(w io.Writer, s *worldStatus) {
	if len(s.Servers) == 0 {
		return
	}
	fmt.Fprintf(w, "waiting\t%s\n", counted.Of(s.Waiting, "request"))
	of := ""
	if s.LogEnd > 0 {
		of = fmt.Sprintf(" of %d", s.LogEnd)
	}
	reached := s.followed()
	for _, name := range slices.Sorted(maps.Keys(reached)) {
		fmt.Fprintf(w, "%s\tat %d%s\n", name, reached[name], of)
	}
	versions := s.versions()
	tone := plain
	if len(versions) > 1 {
		tone = warn
	}
	fmt.Fprintf(w, "servers\t%d, %s\n", len(s.Servers),
		a.coloured("version "+strings.Join(versions, " and "), tone))
	for i := range s.Servers {
		server := &s.Servers[i]
		fmt.Fprintf(w, "server\t%s %s, since %s\n", show(server.ID), show(server.Version),
			server.Started.Format(time.RFC3339))
	}
}

func (a *app) printAlerts(w io.Writer, s *worldStatus) {
	if n := s.Alerts.Lost; n > 0 {
		fmt.Fprintf(w, "alerts lost\t%s\n", a.coloured(fmt.Sprintf(
			"%d since the servers started: only their logs have them", n), bad))
	}
	if _, unknown := s.Unknown["alerts"]; unknown && len(s.Alerts.Count) == 0 {
		return
	}
	more := ""
	if s.Alerts.More {
		more = "+"
	}
	var counts []string
	for _, severity := range []runevents.Severity{runevents.P1, runevents.P2, runevents.P3} {
		if n := s.Alerts.Count[severity]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d%s %s", n, more, severity))
		}
	}
	if counts == nil {
		counts = []string{"none"}
	}
	acknowledged := ""
	if n := s.Alerts.Acknowledged; n > 0 {
		acknowledged = fmt.Sprintf(", and %d%s acknowledged", n, more)
	}
	fmt.Fprintf(w, "alerts\t%s open%s\n", strings.Join(counts, ", "), acknowledged)
	for i := range s.Alerts.Newest {
		alert := &s.Alerts.Newest[i]
		text := fmt.Sprintf("%d %s %s %s: %s", alert.Seq, show(alert.At), alert.Severity,
			alert.Code, show(alert.Message))
		fmt.Fprintf(w, "alert\t%s\n", a.coloured(text, severityTone(alert.Severity)))
	}
}

// size returns a number of bytes for people.
func size(bytes uint64) string {
	value, unit := float64(bytes), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, larger
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"worldengine/cmd/internal/counted"
	"worldengine/runevents"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/storage"
)

// printWorld prints the state of a world for people.
func (a *app) printWorld(w io.Writer, s *messages.WorldReport) {
	known := func(part string) bool { return s.Unknown[part] == "" }
	fmt.Fprintf(w, "world\t%s\n", show(s.World))
	if known("pause") {
		a.printPause(w, &s.Control)
	}
	health := a.coloured("good", good)
	if !s.Healthy {
		health = a.coloured("needs attention", bad)
	}
	fmt.Fprintf(w, "health\t%s\n", health)
	for _, problem := range s.Problems {
		fmt.Fprintf(w, "problem\t%s\n", show(problem))
	}
	a.printStates(w, s)
	if known("approvals") {
		fmt.Fprintf(w, "approvals\t%s\n", a.coloured(approvalsOf(&s.Approvals), toneOf(s.Approvals.Count)))
	}
	if known("servers") {
		a.printServers(w, s)
	}
	if known("alerts") {
		a.printAlerts(w, &s.Alerts, s.Problems)
	}
	for _, part := range slices.Sorted(maps.Keys(s.Unknown)) {
		fmt.Fprintf(w, "not known\t%s: %s\n", part, show(s.Unknown[part]))
	}
}

// toneOf returns the tone of a number of things that wait.
func toneOf(n int) tone {
	if n > 0 {
		return warn
	}
	return plain
}

func approvalsOf(w *messages.WaitingApprovals) string {
	if w.Count == 0 {
		return "none wait"
	}
	return fmt.Sprintf("%s, the oldest since %s in %s", counted.Of(w.Count, "proposal"), show(w.Since),
		show(w.TownID))
}

// printStates prints how many towns are in each state, and which.
func (a *app) printStates(w io.Writer, s *messages.WorldReport) {
	states := []string{fmt.Sprint(s.Towns)}
	for _, of := range []struct {
		count int
		state string
	}{
		{s.States.Paused, "paused"}, {s.States.Applying, "applying"},
		{s.States.NoPlugin, "without their plugin"}, {s.States.Waiting, "waiting for approval"},
		{s.States.InDoubt, "in doubt"},
	} {
		if of.count > 0 {
			states = append(states, fmt.Sprintf("%d %s", of.count, of.state))
		}
	}
	fmt.Fprintf(w, "towns\t%s\n", strings.Join(states, ", "))
	for _, t := range s.TownsPaused {
		text := fmt.Sprintf("%s, by %s since %s: %s", show(t.TownID), show(t.ActorID),
			t.Since.Format(time.RFC3339), orDash(t.Reason))
		fmt.Fprintf(w, "paused town\t%s\n", a.coloured(text, warn))
	}
	for _, t := range s.TownsPending {
		fmt.Fprintf(w, "applying\tto %s, run %s\n", show(t.TownID), a.briefID(t.RunID))
	}
	for i := range s.PluginsAbsent {
		of := &s.PluginsAbsent[i]
		text := fmt.Sprintf("%s, since %s%s", show(of.TownID), show(of.Since), absenceOf(of))
		fmt.Fprintf(w, "no plugin\t%s\n", a.coloured(text, warn))
	}
}

// absenceOf describes the wait for a plugin, and the remedy; "" if an older server leaves it out.
func absenceOf(of *messages.AbsentPlugin) string {
	switch {
	case of == nil:
		return ""
	case of.Attempt == 0:
		return ". " + show(of.Todo)
	}
	return fmt.Sprintf("; attempt %d, the next request at %s: %s %s", of.Attempt, show(of.NextAt),
		show(of.Said), show(of.Todo))
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

func (a *app) printServers(w io.Writer, s *messages.WorldReport) {
	fmt.Fprintf(w, "waiting\t%s\n", counted.Of(s.Waiting, "request"))
	versions := map[string]bool{}
	for i := range s.Servers {
		server := &s.Servers[i]
		versions[server.Version] = true
		role := "stands by"
		if server.Writer {
			role = "writes"
		}
		fmt.Fprintf(w, "server\t%s %s, %s since %s, index at %d of %d\n", show(cmp.Or(server.Name, server.ID)),
			show(server.Version), role, server.Started.Format(time.RFC3339), server.Indexed, s.LogEnd)
		if stats := server.Stats; stats != nil {
			a.printStanding(w, s, stats)
		}
	}
	if len(versions) > 1 {
		fmt.Fprintf(w, "versions\t%s\n",
			a.coloured(strings.Join(slices.Sorted(maps.Keys(versions)), " and "), warn))
	}
	fmt.Fprintf(w, "dead letters\t%d\n", s.DeadLetters)
	fmt.Fprintf(w, "disk\t%s in the streams of the world, before compression\n",
		storage.Size(s.StreamBytes))
}

// printStanding prints how far the writer has come, and the room on its disk.
func (a *app) printStanding(w io.Writer, s *messages.WorldReport, stats *messages.ServerStats) {
	if stats.BusPublished != nil {
		fmt.Fprintf(w, "bus\tat %d of %d\n", *stats.BusPublished, s.LogEnd)
	}
	if stats.ProjectorLagMs != nil {
		lag := time.Duration(*stats.ProjectorLagMs) * time.Millisecond
		fmt.Fprintf(w, "projector\t%s behind\n", lag)
	}
	if disk := stats.Disk; disk != nil {
		tone := plain
		if disk.Low() {
			tone = bad
		}
		text := fmt.Sprintf("%s of %s", storage.Size(disk.Free), storage.Size(disk.Total))
		fmt.Fprintf(w, "disk free\t%s\n", a.coloured(text, tone))
	}
}

// printAlerts prints the alerts, except the texts of those that are problems already.
func (a *app) printAlerts(w io.Writer, alerts *messages.OpenAlerts, problems []string) {
	if n := alerts.Lost; n > 0 {
		fmt.Fprintf(w, "alerts lost\t%s\n", a.coloured(fmt.Sprintf(
			"%d since the servers started: only their logs have them", n), bad))
	}
	var counts []string
	for _, severity := range []runevents.Severity{runevents.P1, runevents.P2, runevents.P3} {
		if n := alerts.Count[severity]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, severity))
		}
	}
	if counts == nil {
		counts = []string{"none"}
	}
	acknowledged := ""
	if n := alerts.Acknowledged; n > 0 {
		acknowledged = fmt.Sprintf(", and %d acknowledged", n)
	}
	fmt.Fprintf(w, "alerts\t%s open%s\n", strings.Join(counts, ", "), acknowledged)
	for i := range alerts.Newest {
		alert := &alerts.Newest[i]
		if slices.ContainsFunc(problems, func(problem string) bool {
			return strings.HasPrefix(problem, fmt.Sprintf("alert %d, ", alert.Seq))
		}) {
			continue
		}
		text := fmt.Sprintf("%d %s %s %s: %s", alert.Seq, show(alert.At), alert.Severity,
			alert.Code, show(alert.Message))
		fmt.Fprintf(w, "alert\t%s\n", a.coloured(text, severityTone(alert.Severity)))
	}
}

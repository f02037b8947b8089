package handoffctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/diskspace"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// statusCommand shows the state of the world, or the pause of a town.
type statusCommand struct {
	Target townFlag `embed:"" set:"without=the whole world by default"`
	Worlds bool     `help:"Show all worlds of the server at a glance."`
}

func (c *statusCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	town := c.Target.town()
	switch {
	case c.Worlds && town != "":
		return usagef("give a town or --worlds, not both")
	case c.Worlds:
		return a.showWorlds(ctx, server)
	case town == "":
		return a.showWorld(ctx, server)
	}
	request := messages.Signal{TownID: town}
	return ask(ctx, a, wire.ControlGet, request, func(t table, r *messages.Control) {
		t.row("town", r.TownID)
		a.writePause(t, r)
		if of, err := server.Town(ctx, town); err == nil {
			t.absence(of)
		}
	})
}

// showWorld shows the status of the world.
func (a *app) showWorld(ctx context.Context, server *client.Client) error {
	var s messages.WorldReport
	raw, err := server.Ask(ctx, wire.WorldStatus, messages.WorldStatus{Damage: true}, &s)
	if err != nil {
		return err
	}
	return a.conclude(raw, func(t table) { a.writeWorld(t, &s) }, failedIf(!s.Healthy,
		"the world %s needs attention: %s", s.World, phrase.Counted(len(s.Problems), "problem")))
}

// writeWorld writes the state of a world.
func (a *app) writeWorld(t table, s *messages.WorldReport) {
	known := func(part string) bool { return s.Unknown[part] == "" }
	t.row("world", s.World)
	if known("pause") {
		a.writePause(t, &s.Control)
	}
	health := a.coloured("good", good)
	switch {
	case !s.Healthy:
		health = a.coloured("needs attention", bad)
	case len(s.Unknown) > 0:
		health = a.coloured("good, as far as it is known", good)
	}
	t.row("health", health)
	a.writeProblems(t, s)
	if known("approvals") {
		approvals := "none wait"
		if w := &s.Approvals; w.Count > 0 {
			approvals = fmt.Sprintf("%s, the oldest since %s in %s",
				phrase.Counted(w.Count, "proposal"), show(w.Since), show(w.TownID))
		}
		t.row("approvals", a.coloured(approvals, toneIf(s.Approvals.Count > 0, warn)))
	}
	if known("servers") {
		a.writeServers(t, s)
	}
	if known("alerts") {
		a.writeAlerts(t, &s.Alerts, s.Problems)
	}
	for _, part := range slices.Sorted(maps.Keys(s.Unknown)) {
		t.row("not known", part+": "+show(s.Unknown[part]))
	}
}

// writePause writes the reply of control.get.
func (a *app) writePause(t table, r *messages.Control) {
	tone := good
	if r.Status == messages.Paused {
		tone = warn
	}
	t.row("status", a.coloured(show(strings.TrimSpace(r.Status+" "+r.Substatus)), tone))
	t.row("applying", r.Applying)
	if by := r.PausedBy; by != nil {
		t.row("paused by", by.ActorID)
		t.row("since", by.At.Format(time.RFC3339))
		t.row("reason", by.Reason)
		t.row("signal", by.SignalID)
	}
}

// writeProblems writes the problems, the towns by state, and the towns that need a person.
func (a *app) writeProblems(t table, s *messages.WorldReport) {
	for _, problem := range s.Problems {
		t.row("problem", problem)
	}
	states := fmt.Sprint(s.Towns)
	for _, of := range []struct {
		count int
		state string
	}{
		{s.States.Paused, "paused"}, {s.States.Applying, "applying"},
		{s.States.NoPlugin, "without their plugin"}, {s.States.Waiting, "waiting for approval"},
		{s.States.InDoubt, "in doubt"},
	} {
		if of.count > 0 {
			states += fmt.Sprintf(", %d %s", of.count, of.state)
		}
	}
	t.row("towns", states)
	for _, p := range s.TownsPaused {
		t.row("paused town", a.coloured(fmt.Sprintf("%s, by %s since %s: %s", show(p.TownID),
			show(p.ActorID), p.Since.Format(time.RFC3339), orDash(p.Reason)), warn))
	}
	for _, p := range s.TownsPending {
		t.linef("applying\tto %s, run %s", p.TownID, a.briefID(p.RunID))
	}
	if len(s.PluginsAbsent) > 0 {
		t.row("no plugin", a.coloured(absences(s), warn))
	}
}

// absences describes the waits for plugins: of one town in full, of several together.
func absences(s *messages.WorldReport) string {
	one := &s.PluginsAbsent[0]
	if len(s.PluginsAbsent) == 1 {
		return fmt.Sprintf("%s, since %s%s", show(one.TownID), show(one.Since), absenceOf(one))
	}
	since, towns := one.Since, []string{}
	for i := range s.PluginsAbsent {
		since = min(since, s.PluginsAbsent[i].Since)
		towns = append(towns, show(s.PluginsAbsent[i].TownID))
	}
	return fmt.Sprintf("%d towns, the first since %s: %s. %s handoffctl town get shows a town's next "+
		"request", s.States.NoPlugin, show(since), phrase.List(towns, s.States.NoPlugin), show(one.Todo))
}

// absenceOf describes the wait for a plugin, and the remedy; "" if an older server leaves it out.
func absenceOf(of *messages.AbsentPlugin) string {
	switch {
	case of == nil:
		return ""
	case of.Attempt == 0:
		return ". " + show(of.Todo)
	}
	return fmt.Sprintf("; attempt %d, the next request at %s: %s. %s", of.Attempt, show(of.NextAt),
		strings.TrimSuffix(show(of.Said), "."), show(of.Todo))
}

func (a *app) writeServers(t table, s *messages.WorldReport) {
	t.row("waiting", phrase.Counted(s.Waiting, "request"))
	for i := range s.Servers {
		server := &s.Servers[i]
		role := "stands by"
		if server.Writer {
			role = "writes"
		}
		t.linef("server\t%s, %s since %s, index at %d of %d", serverName(server.Name, server.ID, server.Version), role,
			server.Started.Format(time.RFC3339), server.Indexed, s.LogEnd)
		if stats := server.Stats; stats != nil {
			a.writeStanding(t, s, stats)
		}
	}
	t.row("dead letters", s.DeadLetters)
	t.row("disk", diskspace.Size(s.StreamBytes)+" in the streams of the world, before compression")
}

// serverName returns the name and the version of a server.
func serverName(name, id, version string) string {
	return show(cmp.Or(name, id)) + " " + show(version)
}

// writeStanding writes the progress of the writer's bus and projector, and the room on its disk.
func (a *app) writeStanding(t table, s *messages.WorldReport, stats *messages.ServerStats) {
	if stats.BusPublished != nil {
		t.linef("bus\tat %d of %d", *stats.BusPublished, s.LogEnd)
	}
	if stats.ProjectorLagMs != nil {
		t.linef("projector\t%s behind", time.Duration(*stats.ProjectorLagMs)*time.Millisecond)
	}
	if disk := stats.Disk; disk != nil {
		t.row("disk free", a.coloured(diskspace.Size(disk.Free)+" of "+diskspace.Size(disk.Total),
			toneIf(disk.Low(), bad)))
	}
}

// writeAlerts writes the alerts, without the texts that are among the problems already.
func (a *app) writeAlerts(t table, alerts *messages.OpenAlerts, problems []string) {
	if n := alerts.Lost; n > 0 {
		t.row("alerts lost", a.coloured(fmt.Sprintf(
			"%d since the servers started: only their logs have them", n), bad))
	}
	var counts []string
	for _, severity := range []runevents.Severity{runevents.P1, runevents.P2, runevents.P3} {
		if n := alerts.Count[severity]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, severity))
		}
	}
	open := cmp.Or(strings.Join(counts, ", "), "none") + " open"
	if n := alerts.Acknowledged; n > 0 {
		open += fmt.Sprintf(", and %d acknowledged", n)
	}
	t.row("alerts", open)
	known := "\n" + strings.Join(problems, "\n")
	for i := range alerts.Newest {
		alert := &alerts.Newest[i]
		if strings.Contains(known, fmt.Sprintf("\nalert %d, ", alert.Seq)) {
			continue
		}
		t.row("alert", a.coloured(fmt.Sprintf("%d %s %s %s: %s%s", alert.Seq, show(alert.At),
			alert.Severity, alert.Code, show(alert.Message), othersOf(alert)),
			severityTones[alert.Severity]))
	}
}

// othersOf names the other open alerts with the code of one.
func othersOf(alert *messages.OpenAlert) (text string) {
	if n := alert.Open - 1; n > 0 {
		text = fmt.Sprintf(" And %d more", n)
	}
	if n := len(alert.Towns); n > 1 {
		text += "; towns " + show(phrase.List(alert.Towns, n))
	}
	return text
}

type statsCommand struct{}

func (c *statsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	s, err := server.WorldStatus(ctx)
	if err != nil {
		return err
	}
	if s.Unknown["servers"] != "" {
		return unavailablef(permissionDenied, nil, "this user may not ask for statistics: the role "+
			"operator may, and observer without read")
	}
	return a.print(map[string]any{"servers": s.Servers}, func(t table) {
		for i := range s.Servers {
			if s.Servers[i].Stats != nil { // nil if it stands by
				t.stats(&s.Servers[i])
			}
		}
	})
}

// stats writes the statistics of a server.
func (t table) stats(of *messages.Server) {
	s := of.Stats
	var results []string
	for _, status := range handoff.Statuses() {
		results = append(results, fmt.Sprintf("%s %d", status, s.Results[status]))
	}
	t.linef("server\t%s, since %s", serverName(of.Name, of.ID, of.Version), of.Started.Format(time.RFC3339))
	t.row("results", strings.Join(results, ", "))
	t.linef("in hand\twaiting %d, applying %d, held %d with %s", s.Unfinished, s.Applying,
		s.Overload.Held, diskspace.Size(uint64(max(s.Overload.HeldBytes, 0))))
	t.row("refused", countsOf(s.Overload.Refused))
	t.row("alerts", countsOf(s.Alerts))
	t.lineIf(s.AlertsLost > 0 || len(s.AlertsMore) > 0, "alerts not stored\tlost %d, counted alone %s", s.AlertsLost,
		countsOf(s.AlertsMore))
	t.row("processor", time.Duration(s.ProcessorMs)*time.Millisecond)
	t.Flush()
	slices.SortFunc(of.Verbs, func(a, b messages.VerbCount) int { return cmp.Compare(a.Verb, b.Verb) })
	list(t, "VERB\tREQUESTS\tAVERAGE", of.Verbs, func(v *messages.VerbCount) []any {
		average := "-"
		if v.Requests > 0 {
			average = (time.Duration(v.AverageMicros) * time.Microsecond).String()
		}
		return []any{v.Verb, v.Requests, average}
	})
	t.Flush()
}

// countsOf lists the counts that are not 0, by name.
func countsOf[K ~string](counts map[K]int64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			all = append(all, fmt.Sprintf("%s %d", show(string(name)), counts[name]))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

type whoAmICommand struct{}

func (whoAmICommand) Run(ctx context.Context, a *app) error {
	return ask(ctx, a, wire.WhoAmI, struct{}{}, func(t table, id *messages.Identity) {
		t.row("world", id.World)
		t.row("user", id.User)
		t.row("role", cmp.Or(id.Role, "none: there is no access control"))
		t.row("worlds", listed(id.Worlds))
		t.row("acts on", listed(id.Towns))
		t.row("speaks for", listed(id.Actors))
		t.row("reads", listed(id.Read))
		t.row("verbs", strings.Trim(fmt.Sprint(id.Verbs), "[]"))
	})
}

// listed names the ids to which a right is limited.
func listed(ids []string) string { return cmp.Or(strings.Join(ids, ", "), "all") }

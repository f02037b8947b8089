package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/client"
)

// statsCommand shows the statistics of the servers of a world.
type statsCommand struct{}

// Help is the command's long help.
func (statsCommand) Help() string {
	return `Asks every server of the world what it has done since its start: results by status, alerts by
code, what it holds and what it has refused because it was full, and of each verb how many requests
it has answered and how long one took on average, from its arrival to its answer. The user must be
an operator, an observer or the engine. handoffctl status shows how the world is now, and /metrics
has the same counts over time.`
}

// verbCount is what a server has answered of a verb.
type verbCount struct {
	Verb          string `json:"verb"`
	Requests      int64  `json:"requests"`
	AverageMicros int64  `json:"averageMicros"`
}

// countedServer is a server with what it has answered.
type countedServer struct {
	serverStatus `json:",inline"`
	Verbs        []verbCount `json:"verbs"`
}

// Run shows the statistics.
func (c *statsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	id, err := server.WhoAmI(ctx)
	if err != nil {
		return err
	}
	if !maySeeServers(id.Role) {
		return &client.UnavailableError{Code: "PERMISSION_DENIED", Message: fmt.Sprintf(
			"the user %s may not ask for statistics: that takes the role operator or observer, "+
				"and it has the role %s", cmp.Or(id.User, "of this connection"), id.Role)}
	}
	found, err := serversOf(ctx, server)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &client.UnavailableError{Code: "TIMEOUT",
			Message: "no server of the world has said what it has done"}
	}
	if !a.json() {
		return a.printStats(found)
	}
	all := struct {
		Servers []countedServer `json:"servers"`
	}{}
	for i := range found {
		all.Servers = append(all.Servers, countedServer{found[i], found[i].verbs})
	}
	return a.printJSON(all)
}

// printStats prints the statistics for people.
func (a *app) printStats(found []serverStatus) error {
	for i := range found {
		if i > 0 {
			if err := a.printf("\n"); err != nil {
				return err
			}
		}
		of := &found[i]
		err := a.printTable(func(w io.Writer) { printCounts(w, of) })
		if err != nil {
			return err
		}
		err = a.printTable(func(w io.Writer) {
			fmt.Fprintln(w, "VERB\tREQUESTS\tAVERAGE")
			for _, v := range of.verbs {
				average := "-"
				if v.Requests > 0 {
					average = (time.Duration(v.AverageMicros) * time.Microsecond).String()
				}
				fmt.Fprintf(w, "%s\t%d\t%s\n", show(v.Verb), v.Requests, average)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func printCounts(w io.Writer, of *serverStatus) {
	s := &of.Stats
	var results []string
	for _, status := range handoff.Statuses() {
		results = append(results, fmt.Sprintf("%s %d", status, s.Results[status]))
	}
	fmt.Fprintf(w, "server\t%s %s, since %s\n", show(of.ID), show(of.Version),
		of.Started.Format(time.RFC3339))
	fmt.Fprintf(w, "results\t%s\n", strings.Join(results, ", "))
	fmt.Fprintf(w, "in hand\twaiting %d, applying %d, held %d with %s\n", s.Waiting, s.Applying,
		s.Overload.Held, size(uint64(max(s.Overload.HeldBytes, 0))))
	fmt.Fprintf(w, "refused\t%s\n", countsOf(s.Overload.Refused))
	fmt.Fprintf(w, "alerts\t%s\n", countsOf(s.Alerts))
	if s.AlertsLost > 0 || len(s.AlertsMore) > 0 {
		fmt.Fprintf(w, "alerts not stored\tlost %d, counted alone %s\n", s.AlertsLost,
			countsOf(s.AlertsMore))
	}
	fmt.Fprintf(w, "processor\t%s\n", time.Duration(s.ProcessorMs)*time.Millisecond)
}

// countsOf lists the counts that are not 0, by name.
func countsOf[K ~string](counts map[K]int64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] > 0 {
			all = append(all, fmt.Sprintf("%s %d", show(string(name)), counts[name]))
		}
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

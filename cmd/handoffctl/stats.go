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
	"worldengine/worldengine/messages"
	"worldengine/worldengine/storage"
)

// statsCommand shows the statistics of the servers of a world.
type statsCommand struct{}

// Help is the command's long help.
func (statsCommand) Help() string {
	return `Shows the counts of the server that serves the world since its start: results by status, alerts by
code, what it holds and what it has refused because it was full, and of each verb how many requests
it has answered and how long one took on average, from its arrival to its answer. The user must be
an operator or an observer. handoffctl status shows how the world is now, and /metrics
has the same counts over time.`
}

// Run shows the statistics.
func (c *statsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	s, err := server.WorldStatus(ctx)
	if err != nil {
		return err
	}
	if why := s.Unknown["servers"]; why != "" {
		return &client.UnavailableError{Code: permissionDenied,
			Message: "this user may not ask for statistics: " + why}
	}
	if !a.json() {
		return a.printStats(s.Servers)
	}
	return a.printJSON(struct {
		Servers []messages.Server `json:"servers"`
	}{s.Servers})
}

// printStats prints the statistics for people.
func (a *app) printStats(found []messages.Server) error {
	for i := range found {
		of := &found[i]
		if of.Stats == nil { // it stands by
			continue
		}
		err := a.printTable(func(w io.Writer) { printCounts(w, of) })
		if err != nil {
			return err
		}
		err = a.printTable(func(w io.Writer) {
			fmt.Fprintln(w, "VERB\tREQUESTS\tAVERAGE")
			for _, v := range of.Verbs {
				average := "-"
				if v.Requests > 0 {
					average = (time.Duration(v.AverageMicros) * time.Microsecond).String()
				}
				fmt.Fprintf(w, "%s\t%d\t%s\n", show(string(v.Verb)), v.Requests, average)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func printCounts(w io.Writer, of *messages.Server) {
	s := of.Stats
	var results []string
	for _, status := range handoff.Statuses() {
		results = append(results, fmt.Sprintf("%s %d", status, s.Results[status]))
	}
	fmt.Fprintf(w, "server\t%s %s, since %s\n", show(cmp.Or(of.Name, of.ID)), show(of.Version),
		of.Started.Format(time.RFC3339))
	fmt.Fprintf(w, "results\t%s\n", strings.Join(results, ", "))
	fmt.Fprintf(w, "in hand\twaiting %d, applying %d, held %d with %s\n", s.Waiting, s.Applying,
		s.Overload.Held, storage.Size(uint64(max(s.Overload.HeldBytes, 0))))
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

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"worldengine/cmd/internal/counted"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/client"
	"worldengine/worldengine/server"
)

// demoCommand starts the real server on a free port and sends it, over NATS, handoffs that end in
// each of the five statuses.
type demoCommand struct {
	Stay bool `help:"Go on serving until the program is stopped, with the console on a free port."`
}

const demoTown = "town-threatened"

// Run prints the handoffs, their results and the run events that they left.
func (c *demoCommand) Run(stopped context.Context, s streams) (err error) {
	ctx, cancel := context.WithTimeout(stopped, time.Minute)
	defer cancel()
	data, err := os.MkdirTemp("", "handoffd-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(data)
	config := server.Config{
		Listen: "127.0.0.1:0", Data: data, World: worlds.Frontier,
		Logger: newLogger(s.log, "text", slog.LevelWarn),
	}
	if c.Stay {
		config.HTTP = "127.0.0.1:0"
	}
	srv, err := server.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.Background(), server.DefaultDrainTimeout)
		defer cancel()
		err = errors.Join(err, srv.Close(stop))
	}()
	agent, err := client.Connect(srv.URL(), client.Options{Name: "handoffd demo"})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer agent.Close()
	fmt.Fprintf(s.out, "A world engine serves %s at %s. An agent sends handoffs for %s:\n\n",
		counted.Of(srv.Created(), "town"), srv.URL(), demoTown)
	if err := playDemo(ctx, s.out, agent); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if c.Stay {
		fmt.Fprintf(s.out, "\nconsole %s\nready %s\n", srv.HTTP(), srv.URL())
		<-stopped.Done()
		return nil
	}
	fmt.Fprintf(s.out,
		"\nTo look at it: go run ./cmd/handoffd demo --stay\nNow your own: go run ./cmd/handoffd "+
			"--world-file testdata/worlds/frontier.json\n")
	return nil
}

// scene is one handoff and its effect.
type scene struct {
	what     string
	want     handoff.Status
	proposal handoff.Proposal

	result *handoff.Result
	events []runevents.Record
}

// playDemo sends the scenes and prints the tables. The wall is advanced once, so the handoff that
// was made before is a duplicate after it, and one made from the old snapshot is stale.
func playDemo(ctx context.Context, out io.Writer, agent *client.Client) error {
	before, err := agent.Town(ctx, demoTown)
	if err != nil {
		return err
	}
	project := func(id string) handoff.Proposal {
		return handoff.Proposal{
			Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: demoTown, Priority: 0.8,
			Reason:       "Threat level 82% demands project advancement for defense.",
			Args:         map[string]string{"projectId": id},
			SnapshotHash: before.SnapshotHash, DecisionEpoch: before.DecisionEpoch,
			Preconditions: []handoff.Precondition{{Kind: handoff.ProjectExists, TargetID: id}},
		}
	}
	talk := project("")
	talk.Type, talk.Args, talk.Preconditions = handoff.TalkToTownsfolk,
		map[string]string{"talkType": "casual"}, nil
	scenes := []*scene{
		{what: "a project that the town does not have", want: handoff.Rejected,
			proposal: project("moat")},
		{what: "a project that is blocked", want: handoff.Failed, proposal: project("bridge-east")},
		{what: "the perimeter wall", want: handoff.Executed, proposal: project("wall-perimeter")},
		{what: "the same handoff once more", want: handoff.Duplicate,
			proposal: project("wall-perimeter")},
		{what: "a talk, decided before the wall grew", want: handoff.Stale, proposal: talk},
	}
	for _, scene := range scenes {
		if err := scene.play(ctx, agent); err != nil {
			return fmt.Errorf("%s: %w", scene.what, err)
		}
	}
	after, err := agent.Town(ctx, demoTown)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HANDOFF\tSTATUS\tREASON\tRESULT")
	for _, s := range scenes {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", s.what, s.result.Status, s.result.ReasonCode,
			s.result.ResultID[:len("result_")+12]+"…")
	}
	table.Flush()
	fmt.Fprintln(out)
	fmt.Fprintln(table, "HANDOFF\tRUN EVENTS")
	for _, s := range scenes {
		fmt.Fprintf(table, "%s\t%s\n", s.what, strings.Join(eventCells(s.events), "\t"))
	}
	table.Flush()
	_, err = fmt.Fprintf(out,
		"\n%s moved from day %d (%s…) to day %d (%s…): one handoff was executed.\n",
		demoTown, before.DecisionEpoch, before.SnapshotHash[:12], after.DecisionEpoch,
		after.SnapshotHash[:12])
	return err
}

// play sends the handoff, and keeps its result and its run's events.
func (s *scene) play(ctx context.Context, agent *client.Client) error {
	h, err := handoff.New(s.proposal)
	if err != nil {
		return err
	}
	outcome, err := agent.Send(ctx, h)
	if err != nil {
		return err
	}
	s.result = outcome.Result
	if s.result.Status != s.want {
		return fmt.Errorf("ended %s (%s), not %s", s.result.Status, s.result.ReasonCode, s.want)
	}
	for event, err := range agent.RunEvents(ctx, outcome.RunID, 0) {
		if err != nil {
			return err
		}
		s.events = append(s.events, event.Record)
	}
	return nil
}

// eventCells returns a run's events in short: its own first, then a text for each step, such as
// "apply 8-9 Completed".
func eventCells(events []runevents.Record) []string {
	var run, cells []string
	for i := 0; i < len(events); i++ {
		first := events[i]
		if first.StepID == "" {
			run = append(run, fmt.Sprintf("%d %s", first.RunSeq, first.EventType))
			continue
		}
		places, last := fmt.Sprint(first.RunSeq), first
		if i+1 < len(events) && events[i+1].StepID == first.StepID {
			i++
			last = events[i]
			places += fmt.Sprintf("-%d", last.RunSeq)
		}
		cells = append(cells, fmt.Sprintf("%s %s %s", first.StepID, places,
			strings.TrimPrefix(string(last.EventType), "Step")))
	}
	return append([]string{strings.Join(run, " … ")}, cells...)
}

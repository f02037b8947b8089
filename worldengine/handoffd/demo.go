package handoffd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/serve/hosting"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/tempserver"
)

// demoCommand starts the real server on a free port and sends it, over NATS, handoffs that end in
// each of the five statuses.
type demoCommand struct {
	Stay bool `help:"Go on serving until the program is stopped, with the console on a free port."`
}

const demoTown = "town-threatened"

// Run prints the handoffs, their results and the run events that they left.
func (c *demoCommand) Run(stopped context.Context, s outputs) (err error) {
	ctx, cancel := context.WithTimeout(stopped, time.Minute)
	defer cancel()
	config := server.Config{
		Worlds: hosting.Config{Towns: worlds.Frontier},
		Logger: newLogger(s.log, "text", slog.LevelWarn),
	}
	if c.Stay {
		config.HTTP.Listen = "127.0.0.1:0"
	}
	srv, end, err := tempserver.Start(ctx, config)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, end()) }()
	agent, err := client.Connect(srv.URL(), client.Options{Name: "handoffd demo"})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer agent.Close()
	fmt.Fprintf(s.out, "A world engine serves %s at %s. An agent sends handoffs for %s:\n\n",
		phrase.Counted(srv.TownsCreated(), "town"), srv.URL(), demoTown)
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

// playDemo sends the handoffs and prints the tables. The wall is advanced once. The same handoff is
// a duplicate when it is sent again, and a handoff made from the old snapshot is stale.
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
	results := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	runs := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(results, "HANDOFF\tSTATUS\tREASON\tRESULT")
	fmt.Fprintln(runs, "HANDOFF\tRUN EVENTS")
	for _, scene := range []struct {
		title    string
		want     handoff.Status
		proposal handoff.Proposal
	}{
		{"a project that the town does not have", handoff.Rejected, project("moat")},
		{"a project that is blocked", handoff.Failed, project("bridge-east")},
		{"the perimeter wall", handoff.Executed, project("wall-perimeter")},
		{"the same handoff once more", handoff.Duplicate, project("wall-perimeter")},
		{"a talk, decided before the wall grew", handoff.Stale, talk},
	} {
		h, err := handoff.New(scene.proposal)
		if err != nil {
			return err
		}
		outcome, err := agent.Send(ctx, h)
		if err != nil {
			return fmt.Errorf("%s: %w", scene.title, err)
		}
		result := outcome.Result
		if result.Status != scene.want {
			return fmt.Errorf("%s ended %s (%s), not %s", scene.title, result.Status,
				result.ReasonCode, scene.want)
		}
		fmt.Fprintf(results, "%s\t%s\t%s\t%s…\n", scene.title, result.Status, result.ReasonCode,
			result.ResultID[:len("result_")+12])
		fmt.Fprint(runs, scene.title)
		for event, err := range agent.RunEvents(ctx, outcome.RunID, 0) {
			if err != nil {
				return fmt.Errorf("%s: %w", scene.title, err)
			}
			fmt.Fprint(runs, eventCell(&event.Record))
		}
		fmt.Fprintln(runs)
	}
	results.Flush()
	fmt.Fprintln(out)
	runs.Flush()
	after, err := agent.Town(ctx, demoTown)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out,
		"\n%s moved from day %d (%s…) to day %d (%s…): one handoff was executed.\n",
		demoTown, before.DecisionEpoch, before.SnapshotHash[:12], after.DecisionEpoch,
		after.SnapshotHash[:12])
	return err
}

// eventCell returns the cell of a run event, such as "10 RunFailed" or "apply 8-9 Completed". The
// start of a step has no cell: the next event, which ends the step, names both.
func eventCell(event *runevents.Record) string {
	switch event.EventType {
	case runevents.StepStarted:
		return ""
	case runevents.StepSkipped:
		return fmt.Sprintf("\t%s %d Skipped", event.StepID, event.RunSeq)
	case runevents.StepCompleted, runevents.StepFailed:
		return fmt.Sprintf("\t%s %d-%d %s", event.StepID, event.RunSeq-1, event.RunSeq,
			strings.TrimPrefix(string(event.EventType), "Step"))
	}
	return fmt.Sprintf("\t%d %s", event.RunSeq, event.EventType)
}

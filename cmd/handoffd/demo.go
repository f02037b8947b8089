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

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/cmd/internal/counted"
	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/testdata/worlds"
	"worldengine/worldengine/client"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// demoCommand starts the real server on a free port and sends it, over NATS, handoffs that end in
// each of the five statuses.
type demoCommand struct {
	Stay bool `help:"Go on serving until the program is stopped, with the console on a free port."`
}

const demoTown = "town-threatened"

// Run prints what was sent, what came back and which run events it left.
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
	nc, err := nats.Connect(srv.URL(), nats.Name("handoffd demo"))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer nc.Close()
	fmt.Fprintf(s.out, "A world engine serves %s at %s. An agent sends handoffs for %s:\n\n",
		counted.Of(srv.Created(), "town"), srv.URL(), demoTown)
	d := demo{ctx: ctx, nc: nc, out: s.out}
	if err := d.play(); err != nil {
		return err
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

// demo plays the agent.
type demo struct {
	ctx  context.Context
	nc   *nats.Conn
	out  io.Writer
	rows []demoRow
}

type demoRow struct {
	what   string
	result *handoff.Result
	events []runevents.Record
}

// scene is one handoff: what it shows, what is proposed, and from which snapshot.
type scene struct {
	what     string
	want     handoff.Status
	proposal handoff.Proposal
}

// play sends the scenes and prints the table. The wall is advanced once, so the handoff that was
// made before is a duplicate after it, and one made from the old snapshot is stale.
func (d *demo) play() error {
	before, err := d.town()
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
	scenes := []scene{
		{"a project that the town does not have", handoff.Rejected, project("moat")},
		{"a project that is blocked", handoff.Failed, project("bridge-east")},
		{"the perimeter wall", handoff.Executed, project("wall-perimeter")},
		{"the same handoff once more", handoff.Duplicate, project("wall-perimeter")},
		{"a talk, decided before the wall grew", handoff.Stale, talk},
	}
	for _, scene := range scenes {
		if err := d.send(scene); err != nil {
			return fmt.Errorf("demo: %s: %w", scene.what, err)
		}
	}
	after, err := d.town()
	if err != nil {
		return err
	}
	return d.print(before, after)
}

func (d *demo) send(scene scene) error {
	h, err := handoff.New(scene.proposal)
	if err != nil {
		return err
	}
	encoded, err := h.MarshalWire()
	if err != nil {
		return err
	}
	reply, err := d.request(wire.Handoff, encoded)
	if err != nil {
		return err
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	if err != nil {
		return err
	}
	if result.Status != scene.want {
		return fmt.Errorf("ended %s (%s), not %s", result.Status, result.ReasonCode, scene.want)
	}
	run, err := json.Marshal(map[string]string{"runId": reply.Header.Get(wire.RunIDHeader)})
	if err != nil {
		return err
	}
	eventsReply, err := d.request(wire.RunEvents, run)
	if err != nil {
		return err
	}
	var page struct {
		Events []runevents.Record `json:"events"`
	}
	if err := json.Unmarshal(eventsReply.Data, &page); err != nil {
		return err
	}
	d.rows = append(d.rows, demoRow{scene.what, result, page.Events})
	return nil
}

// demoState is the part of a town.get reply that an agent makes its proposals from.
type demoState struct {
	SnapshotHash  string `json:"snapshotHash"`
	DecisionEpoch int64  `json:"decisionEpoch"`
}

func (d *demo) town() (demoState, error) {
	var state demoState
	reply, err := d.request(wire.TownGet, []byte(`{"townId":"`+demoTown+`"}`))
	if err != nil {
		return state, fmt.Errorf("demo: %w", err)
	}
	return state, json.Unmarshal(reply.Data, &state)
}

func (d *demo) request(verb wire.Verb, body []byte) (*nats.Msg, error) {
	reply, err := d.nc.RequestWithContext(d.ctx, wire.Subject(wire.DefaultWorld, verb), body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	if refused := client.ReplyErrorOf(reply); refused != nil {
		return nil, fmt.Errorf("%s: %w", verb, refused)
	}
	return reply, nil
}

func (d *demo) print(before, after demoState) error {
	results := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(results, "HANDOFF\tSTATUS\tREASON\tRESULT")
	for _, row := range d.rows {
		fmt.Fprintf(results, "%s\t%s\t%s\t%s\n", row.what, row.result.Status,
			row.result.ReasonCode, row.result.ResultID[:len("result_")+12]+"…")
	}
	if err := results.Flush(); err != nil {
		return err
	}
	events := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(d.out)
	fmt.Fprintln(events, "HANDOFF\tRUN EVENTS")
	for _, row := range d.rows {
		fmt.Fprintf(events, "%s\t%s\n", row.what, strings.Join(eventCells(row.events), "\t"))
	}
	if err := events.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(d.out,
		"\n%s moved from day %d (%s…) to day %d (%s…): one handoff was executed.\n",
		demoTown, before.DecisionEpoch, before.SnapshotHash[:12], after.DecisionEpoch,
		after.SnapshotHash[:12])
	return err
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

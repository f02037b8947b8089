package handoffctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

type runGetCommand struct {
	RunID string `arg:"" name:"run-id" help:"The run's id, which send prints, or its beginning."`
}

func (c *runGetCommand) Run(ctx context.Context, a *app) error {
	runID, err := a.runID(ctx, c.RunID, false)
	if err != nil {
		return err
	}
	request := messages.RunGet{RunID: runID}
	return ask[messages.Run](ctx, a, wire.RunGet, request, "run")
}

type runEventsCommand struct {
	RunID     string `arg:"" name:"run-id" help:"The run's id, which send prints, or its beginning."`
	limitFlag `embed:""`
}

func (c *runEventsCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	runID, err := a.runID(ctx, c.RunID, false)
	if err != nil {
		return err
	}
	events, err := first(server.RunEvents(ctx, runID, 0), c.Limit)
	if err != nil {
		return err
	}
	all := messages.Events{Events: []jsontext.Value{}} // as one reply
	for _, e := range events {
		all.Events, all.LastEventSeq = append(all.Events, e.JSON), e.RunSeq
	}
	return a.print(all, "events", events)
}

type runListCommand struct {
	Town   string   `help:"List only the runs of this town." placeholder:"ID"`
	Actor  string   `help:"List only the runs of this actor, who proposed or gave the signal." placeholder:"NAME"`
	Type   string   `help:"List only the runs of this type of proposal, such as PROJECT_ADVANCE, or of this signal, such as PAUSE." placeholder:"TYPE"`
	Status string   `help:"List only the runs with this status, such as RUNNING, or with this status of the result, such as rejected." placeholder:"STATUS"`
	Reason string   `help:"List only the runs whose result has this reason code, such as PRECONDITION_FAILED." placeholder:"CODE"`
	ID     string   `help:"List only the runs with an id that begins with this text: the id of the run, its key, its handoff or its result." placeholder:"TEXT"`
	Since  moment   `help:"List only the runs that were stored at this time or later: an RFC 3339 time, or an age such as 1h." placeholder:"TIME"`
	Until  moment   `help:"List only the runs that were stored before this time, in the form of --since." placeholder:"TIME"`
	Limit  positive `help:"Maximum number of runs, ${default} by default." aliases:"last" default:"100" placeholder:"N"`
	After  uint64   `help:"Continue a list after the place that it printed." placeholder:"PLACE"`
	Oldest bool     `help:"Show the oldest runs first."`
}

func (c *runListCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	request := messages.RunList{
		TownID: c.Town, ActorID: c.Actor, Type: c.Type, Status: c.Status, After: c.After,
		Reason: strings.ToUpper(c.Reason), ID: c.ID, From: string(c.Since), To: string(c.Until),
	}
	if t, is := handoff.ProposalTypeNamed(c.Type); is { // by its short name, too
		request.Type = string(t)
	}
	if c.Oldest {
		request.Order = "oldest"
	}
	all, err := listRuns(ctx, server, request, int(c.Limit))
	if err != nil {
		return err
	}
	return a.print(all, "runs", &all)
}

// moment is an RFC 3339 time. On the command line it may also be an age.
type moment string

// UnmarshalText reads the value of a flag.
func (m *moment) UnmarshalText(text []byte) error {
	at, err := time.Parse(time.RFC3339, string(text))
	if ago, notAge := time.ParseDuration(string(text)); notAge == nil && ago >= 0 {
		at, err = time.Now().Add(-ago), nil
	}
	if err != nil {
		return fmt.Errorf("must be a time such as 2026-02-16T10:00:00Z, or an age such as 90m, not %q",
			text)
	}
	*m = moment(runevents.Timestamp(at))
	return nil
}

// maxRunPage is the largest page of a request. maxSearch bounds the runs that are searched for the
// beginning of an id.
const (
	maxRunPage = 200
	maxSearch  = 10_000
)

// listRuns asks for up to limit runs.
func listRuns(
	ctx context.Context, server *client.Client, request messages.RunList, limit int,
) (messages.Runs, error) {
	all := messages.Runs{Runs: []messages.RunRow{}}
	for more := true; more && len(all.Runs) < limit; {
		request.Limit = min(limit-len(all.Runs), maxRunPage)
		var page messages.Runs
		if _, err := server.Ask(ctx, wire.RunList, request, &page); err != nil {
			return all, err
		}
		page.Runs, page.Searched = append(all.Runs, page.Runs...), all.Searched+page.Searched
		all, request.After = page, page.Next
		more = all.Next > 0 && (request.ID == "" || all.Searched < maxSearch)
	}
	return all, nil
}

// command is the command of a run, or its signal.
func command(run *messages.RunRow) string {
	var s machine.SignalPayload
	if run.Command == "" && run.Type != "" && json.Unmarshal(run.Metadata.Started, &s) == nil {
		return signalText(&s)
	}
	return run.Command
}

// signalText describes a signal. A refused signal may lack the run or the handoff that it was
// about.
func signalText(s *machine.SignalPayload) string {
	about := whole(s.TownID)
	switch {
	case s.RunID != "":
		about = "run " + s.RunID
	case s.Signal == machine.SignalCancel, s.Signal == machine.SignalRetry:
		about = "a run"
	case s.TownID == "" && (s.Signal == machine.SignalApprove || s.Signal == machine.SignalDeny):
		about = "a handoff"
	}
	text := string(s.Signal) + " " + about + " by " + s.ActorID
	if s.Code != "" {
		text += ": " + s.Code
	}
	return text
}

// wholeRunID is the length of the ids that the engine gives runs.
const wholeRunID = 36

// runID returns the id of the run that the command line names by the id or its beginning. If no
// searched run has such an id, it returns the text, and the server judges that. If sure is set, it
// accepts a beginning only if all runs were searched.
func (a *app) runID(ctx context.Context, named string, sure bool) (string, error) {
	if named == "" || len(named) >= wholeRunID {
		return named, nil
	}
	server, err := a.connect()
	if err != nil {
		return "", err
	}
	// A run of another producer may have a short id; the verb will report any other error.
	if _, err := server.Run(ctx, named); !client.IsCode(err, wire.CodeUnknownRun) {
		return named, nil
	}
	page, err := listRuns(ctx, server, messages.RunList{ID: named}, maxRunPage)
	if err != nil { // this user may not list runs, but may name a whole id
		return named, nil
	}
	var found []string
	for i := range page.Runs {
		if id := page.Runs[i].RunID; strings.HasPrefix(id, named) {
			found = append(found, id)
		}
	}
	switch {
	case len(found) > 1:
		return "", usagef("%d runs have an id that begins with %s, such as %s and %s: give more "+
			"of it", len(found), show(named), found[0], found[1])
	case page.Next > 0 && (sure || len(found) == 0):
		return "", usagef("ids that begin with %s were searched among the newest %d runs alone: "+
			"give the whole id", show(named), page.Searched)
	case len(found) == 0:
		return named, nil
	}
	return found[0], nil
}

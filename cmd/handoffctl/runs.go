package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/lifecycle"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// runGetCommand shows the state of a run.
type runGetCommand struct {
	RunID string `arg:"" name:"run-id" help:"The run: what send prints, or the beginning of that."`
}

// Help is the command's long help.
func (runGetCommand) Help() string {
	return `Shows the status of a run, its steps, the command, and how the run ended. With -o json
it prints the server's reply, a RunSnapshot. The beginning of an id is looked for among the newest
10,000 runs.

Example:

    handoffctl run get 0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a`
}

// Run shows the run.
func (c *runGetCommand) Run(ctx context.Context, a *app, server *client.Client) error {
	runID, err := a.runID(ctx, c.RunID, false)
	if err != nil {
		return err
	}
	var run messages.Run
	raw, err := server.Ask(ctx, wire.RunGet, messages.RunGet{RunID: runID}, &run)
	if err != nil {
		return err
	}
	return a.printAnswer(raw, func(w io.Writer) {
		fmt.Fprintf(w, "run\t%s\n", show(run.RunID))
		status := a.coloured(show(string(run.Status)),
			runTone(run.Status, run.ResultStatus))
		if run.Substatus != "" {
			status += ", " + show(strings.ToLower(run.Substatus))
		}
		fmt.Fprintf(w, "status\t%s %s\n", status, show(string(run.Metadata.Consistency)))
		if run.PluginAbsentSince != "" {
			fmt.Fprintf(w, "waits\tfor a plugin: the town has had none since %s%s\n",
				show(run.PluginAbsentSince), absenceOf(run.PluginAbsent))
		}
		if by := run.Metadata.AppendedBy; by != "" {
			fmt.Fprintf(w, "begun\tnot by the engine: appended by %s\n", show(by))
		}
		fmt.Fprintf(w, "arrived\t%s\n", orDash(run.ArrivedAt))
		fmt.Fprintf(w, "took\t%s\n", took(&run.Timing))
		fmt.Fprintf(w, "asked\t%s\n", orDash(string(run.Metadata.Started)))
		fmt.Fprintf(w, "outcome\t%s\n", orDash(string(run.Metadata.Outcome)))
		for _, step := range run.Steps {
			why := step.Reason
			if step.Error != nil {
				why = step.Error.Code + ": " + step.Error.Message
			}
			fmt.Fprintf(w, "step %d\t%s\t%s\t%s\n", step.LogicalAttemptID, show(step.StepID),
				show(string(step.Status)), show(why))
		}
	})
}

// runListCommand lists runs.
type runListCommand struct {
	Town   string `help:"Only the runs of this town." placeholder:"ID"`
	Actor  string `help:"Only the runs of this actor: who proposed, or gave the signal." placeholder:"NAME"`
	Type   string `help:"Only the runs of proposals of this type, such as PROJECT_ADVANCE, or of this signal, such as PAUSE." placeholder:"TYPE"`
	Status string `help:"Only the runs of this status, such as RUNNING, or of whose result it is the status, such as rejected." placeholder:"STATUS"`
	Reason string `help:"Only the runs whose result has this reason code, such as PRECONDITION_FAILED." placeholder:"CODE"`
	ID     string `help:"Only the runs with an id that begins so: the run's, its key, its handoff's or its result's." placeholder:"TEXT"`
	Since  string `help:"Only the runs that were persisted at this time or later: an RFC 3339 time, or how long ago, such as 1h." placeholder:"TIME"`
	Until  string `help:"Only the runs that were persisted before this time; as --since." placeholder:"TIME"`
	Limit  int    `help:"How many runs to show at most, ${default} by default." aliases:"last" default:"100" placeholder:"N"`
	After  uint64 `help:"Go on where a list ended: what it printed." placeholder:"PLACE"`
	Oldest bool   `help:"Show the oldest runs first."`
}

// Help is the command's long help.
func (runListCommand) Help() string {
	return `Lists runs, the newest first. With -o json it prints {"runs": […], "next": …}, each a
RunSnapshot with its town, actor, type, command, and the status and reason code of its result. A run
took as long as its client waited, from the arrival of the handoff. --id looks through the newest
10,000 runs behind --after.

Example:

    handoffctl run list --town town-threatened --status rejected --since 1h`
}

// maxRunPage is how many runs one request may ask for.
const maxRunPage = 200

// request returns the request of the first page.
func (c *runListCommand) request(now time.Time) (messages.RunList, error) {
	r := messages.RunList{
		TownID: c.Town, ActorID: c.Actor, Type: c.Type, Status: c.Status, After: c.After,
		Reason: strings.ToUpper(c.Reason), ID: c.ID,
	}
	if c.Oldest {
		r.Order = "oldest"
	}
	var err error
	if r.From, err = moment("--since", c.Since, now); err != nil {
		return r, err
	}
	r.To, err = moment("--until", c.Until, now)
	return r, err
}

// moment reads a flag that has an RFC 3339 time, or how long before now; "" stays so.
func moment(flag, text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return runevents.Timestamp(now.Add(-ago)), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return "",
			usagef("%s must be a time such as 2026-02-16T10:00:00Z, or how long ago such as "+
				"90m, not %q",
				flag, text)
	}
	return runevents.Timestamp(at), nil
}

// Run lists the runs.
func (c *runListCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 {
		return usagef("--limit must be at least 1, not %d", c.Limit)
	}
	request, err := c.request(time.Now())
	if err != nil {
		return err
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	all, err := listRuns(ctx, server, request, c.Limit)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printJSON(all)
	}
	return a.printRuns(&all)
}

func (a *app) printRuns(all *messages.Runs) error {
	switch to := orDash(all.SearchedTo); {
	case len(all.Runs) > 0:
	case all.Next > 0:
		return a.printf("none among the %d runs up to %s: --after %d goes on\n", all.Searched, to,
			all.Next)
	default:
		return a.printf("no runs\n")
	}
	err := a.printTable(func(w io.Writer) {
		fmt.Fprintf(w, "RUN\tARRIVED\tTOOK\t%s\tACTOR\tASKED\tOUTCOME\n",
			a.coloured("STATUS", plain))
		for i := range all.Runs {
			run := &all.Runs[i]
			t := runTone(run.Status, run.ResultStatus)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.briefID(run.RunID),
				orDash(run.ArrivedAt), took(&run.Timing), a.coloured(show(string(run.Status)), t),
				orDash(run.ActorID),
				orDash(appended(command(run), run.Metadata.AppendedBy)),
				a.coloured(orDash(endOf(run)), t))
		}
	})
	if err == nil && all.Next > 0 {
		err = a.printf("showing %d among the runs up to %s: --after %d goes on\n", len(all.Runs),
			orDash(all.SearchedTo), all.Next)
	}
	return err
}

// took returns how long a run took, for people.
func took(t *messages.Timing) string {
	if t.TookMs == nil {
		return "-"
	}
	return (time.Duration(*t.TookMs) * time.Millisecond).String()
}

// maxSearch is how many runs are searched for one with an id that begins so.
const maxSearch = 10_000

// endOf returns the outcome of a run, or the plugin that it waits for.
func endOf(run *messages.RunRow) string {
	if away := run.PluginAbsent; away != nil {
		return "no plugin since " + away.Since
	}
	return runOutcome{run.ResultStatus, run.ReasonCode}.String()
}

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
	var signal said
	if run.Command == "" && run.Type != "" && json.Unmarshal(run.Metadata.Started, &signal) == nil {
		return signal.String()
	}
	return run.Command
}

// said is what an operator's signal says in the payloads of its events.
type said struct {
	Signal  string `json:"signal"`
	TownID  string `json:"townId"`
	RunID   string `json:"runId"`
	ActorID string `json:"actorId"`
	Code    string `json:"code"`
}

// String says it in short. A refused signal may not say which run or handoff it was about.
func (s *said) String() string {
	about := whole(s.TownID)
	switch {
	case s.RunID != "":
		about = "run " + s.RunID
	case s.Signal == string(lifecycle.SignalCancel), s.Signal == string(lifecycle.SignalRetry):
		about = "a run"
	case s.TownID == "" && (s.Signal == string(lifecycle.SignalApprove) ||
		s.Signal == string(lifecycle.SignalDeny)):
		about = "a handoff"
	}
	text := s.Signal + " " + about + " by " + s.ActorID
	if s.Code != "" {
		text += ": " + s.Code
	}
	return text
}

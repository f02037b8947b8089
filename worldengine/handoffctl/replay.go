package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"worldengine/worldengine/fixture"
	"worldengine/worldengine/internal/kit/jsonfiles"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/tool/junit"
	"worldengine/worldengine/internal/tool/record"
	"worldengine/worldengine/internal/tool/replay"
)

// replayCommand sends the handoffs of fixtures.
type replayCommand struct {
	Paths       []string   `arg:"" name:"path" help:"Files, and directories to search for *.json, *.jsonl and *.ndjson that are not hidden; - for standard input."`
	Concurrency positive   `help:"Number of towns, or with --fresh of files, to replay at the same time. The handoffs of one town stay in their order." default:"1"`
	Strict      bool       `help:"Refuse fixtures that expect nothing before anything is sent."`
	Fresh       bool       `help:"Replay against temporary servers, with a new world for each file."`
	Update      bool       `help:"Write the answers into the fixtures that failed or expect nothing, and show the differences." xor:"report"`
	JUnit       outputFile `name:"junit" help:"Also write a JUnit report to this file." placeholder:"FILE" xor:"report"`
}

func (c *replayCommand) Run(ctx context.Context, a *app) error {
	cases, err := c.load(a)
	if err != nil {
		return err
	}
	line := a.progressLine()
	p := &replay.Player{Timeout: a.flags.Timeout, Concurrency: int(c.Concurrency),
		Progress: func(done int) { a.replayed(line, done, len(cases)) }}
	if !c.Fresh {
		if p.Server, err = a.connect(); err != nil {
			return err
		}
	}
	start := time.Now()
	stopped := p.Play(ctx, cases)
	took := time.Since(start)
	line.clear()
	if err := c.JUnit.report(replay.Tests(cases)); err != nil {
		return err
	}
	var updates []replay.Change
	if c.Update && stopped == nil {
		if updates, err = replay.Update(cases); err != nil {
			return usagef("--update: %v", err)
		}
	}
	r := replay.Summarize(cases, took)
	r.Updates = updates
	if stopped != nil && a.json() {
		return stopped
	}
	return errors.Join(stopped, cmp.Or(a.print(r, "replay", r),
		failedIf(stopped == nil && len(r.Failures) > 0, "%d of %d fixtures failed", len(r.Failures), r.Replayed)))
}

// report writes a JUnit report into the file, if one is named.
func (f outputFile) report(tests []junit.Case) error {
	if f == "" {
		return nil
	}
	data, err := junit.Marshal(tests)
	if err != nil {
		return fmt.Errorf("the JUnit report cannot be written: %w", err)
	}
	return f.write(data)
}

// load checks the command line, and reads the fixtures.
func (c *replayCommand) load(a *app) (cases []replay.Case, err error) {
	files, err := jsonfiles.Files(c.Paths)
	if err != nil {
		return nil, usage(err)
	}
	if c.Update && slices.Contains(files, "-") {
		return nil, usagef("--update writes into the files of the fixtures: name files, not -")
	}
	for _, file := range files {
		data, err := a.read(file)
		if err != nil {
			return nil, err
		}
		fixtures, err := fixture.Read(file, data)
		if err != nil {
			return nil, usage(err)
		}
		for i := range fixtures {
			cases = append(cases, replay.Case{Fixture: fixtures[i], File: file, Source: data})
		}
	}
	for i := range cases {
		switch f := &cases[i]; {
		case c.Strict && f.Expect.IsZero():
			return nil, usagef("%s expects nothing, and --strict refuses that", f.Label)
		case !c.Fresh && f.SetsOutcome():
			return nil, usagef("%s has an outcome of a game or a person: replay it with --fresh", f.Label)
		}
	}
	if len(cases) == 0 {
		return nil, usagef("there is no fixture in %s", strings.Join(files, ", "))
	}
	return cases, nil
}

// progressInterval is how many fixtures pass between two lines if there is no terminal.
const progressInterval = 1000

// replayed shows how far a replay is.
func (a *app) replayed(line *progressLine, done, all int) {
	line.show(false, "%d of %d replayed", done, all)
	if line.w == nil && done%progressInterval == 0 {
		fmt.Fprintf(a.err, "%d of %d replayed\n", done, all)
	}
}

// recordCommand makes fixtures of the handoffs that a world has judged.
type recordCommand struct {
	Town  string        `help:"Record only the handoffs of this town." placeholder:"ID" xor:"town"`
	RunID string        `name:"run" help:"Record only the handoff of this run, whose town it names too." placeholder:"RUN-ID" xor:"town,time"`
	For   time.Duration `help:"Record only the handoffs that are judged in this time from now on, or until Ctrl-C." placeholder:"DURATION" xor:"time"`
	Out   outputFile    `help:"File to write; standard output by default." placeholder:"FILE"`
}

func (c *recordCommand) Run(ctx context.Context, a *app) error {
	server, err := a.connect()
	if err != nil {
		return err
	}
	if c.RunID, err = a.runID(ctx, c.RunID, false); err != nil {
		return err
	}
	r := record.New(server)
	switch {
	case c.For > 0:
		err = r.Watch(ctx, c.For, c.Town)
	case c.RunID != "":
		err = r.Run(ctx, c.RunID)
	default:
		err = r.Town(ctx, c.Town)
	}
	if err != nil {
		return err
	}
	for _, why := range slices.Sorted(maps.Keys(r.LeftOut)) {
		fmt.Fprintf(a.err, "left out: %d, %s\n", r.LeftOut[why], why)
	}
	if len(r.Fixtures) == 0 && c.For == 0 {
		return failedf("there is nothing to record: the world has judged no such handoff that a " +
			"fresh server would answer in the same way; no file was written")
	}
	text, err := fixture.Write(r.Fixtures, false)
	switch {
	case err != nil:
		return fmt.Errorf("a fixture cannot be written: %w", err)
	case c.Out == "":
		_, err := a.out.Write(text)
		return err
	}
	if err := c.Out.write(text); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "%s in %s\n", phrase.Counted(len(r.Fixtures), "fixture"), c.Out)
	return nil
}

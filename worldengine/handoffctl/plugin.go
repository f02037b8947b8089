package handoffctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/internal/tool/junit"
	"worldengine/worldengine/internal/tool/standin"
	"worldengine/worldengine/plugin"
	"worldengine/worldengine/plugin/conformance"
	"worldengine/worldengine/wire"
)

// pluginCheckCommand sends a plugin usual and awkward commands, as an engine would.
type pluginCheckCommand struct {
	Subject  string        `arg:"" help:"Subject of a town that the plugin hosts: worldengine.v1.<world>.apply.<town token>."`
	Snapshot string        `help:"File with the snapshot.v1 of the town; an empty town on day 0 by default." type:"existingfile" placeholder:"FILE"`
	Type     string        `help:"Type of the commands, ${default} by default." default:"TOWNSFOLK_TALK" enum:"${proposalTypes}"`
	Argument string        `help:"Argument of the commands: a mission, project, focus or talk type; ${default} by default." default:"casual"`
	Within   time.Duration `help:"Time for a definite answer, ${default} by default." default:"10s"`
	Restart  time.Duration `help:"How long to wait for a restart of the plugin before asking it again. Without this flag that rule is skipped." placeholder:"DURATION"`
	Listen   string        `help:"Begin a NATS server on this address, such as 127.0.0.1:4222, and wait there for the plugin: no other server is needed." placeholder:"HOST:PORT"`
	JUnit    outputFile    `name:"junit" help:"Also write a JUnit report to this file." placeholder:"FILE"`
}

// Run asks the plugin, and fails if it breaks a rule.
func (c *pluginCheckCommand) Run(ctx context.Context, a *app) error {
	config, err := c.config(a)
	if err != nil {
		return err
	}
	if c.Listen != "" {
		end, err := c.listen(ctx, a)
		if err != nil {
			return err
		}
		defer end()
	}
	nc, err := a.dial("handoffctl plugin check")
	if err != nil {
		return err
	}
	rows, err := conformance.Check(ctx, nc, config)
	switch {
	case errors.Is(err, conformance.ErrAbsent):
		return unavailablef("PLUGIN_ABSENT", nil, "no plugin is subscribed to %s: start it, or give "+
			"the subject of a town that it hosts", c.Subject)
	case errors.Is(err, conformance.ErrDenied):
		return unavailablef(permissionDenied, err, "this user may not ask plugins on %s: use a NATS "+
			"server without an engine, or the credentials of an engine", c.Subject)
	case ctx.Err() != nil:
		return err
	case err != nil:
		return invalid("the command of --type and --argument", err)
	}
	if err := c.JUnit.report(c.tests(rows)); err != nil {
		return err
	}
	return c.conclude(a, rows)
}

// listen begins a NATS server, which everybody on its address may use, and waits until the plugin is there.
func (c *pluginCheckCommand) listen(ctx context.Context, a *app) (end func(), err error) {
	host, service, err := net.SplitHostPort(c.Listen)
	port, portErr := strconv.ParseUint(service, 10, 16)
	if err != nil || portErr != nil {
		return nil, usagef("--listen is HOST:PORT, such as 127.0.0.1:4222, not %s", show(c.Listen))
	}
	options := &natsserver.Options{Host: host, Port: int(port), NoSigs: true, NoLog: true}
	if port == 0 {
		options.Port = natsserver.RANDOM_PORT
	}
	ns, err := natsserver.NewServer(options)
	if err != nil {
		return nil, unavailable("LISTEN", err)
	}
	end = func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	}
	go ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		end()
		return nil, unavailablef("LISTEN", nil, "NATS cannot listen on %s: give another address", c.Listen)
	}
	a.flags.Server = ns.ClientURL()
	fmt.Fprintf(a.err, "listening %s\nconnect the plugin to it; the check begins when the plugin is there\n", ns.ClientURL())
	for !ns.GlobalAccount().SubscriptionInterest(c.Subject) {
		if backoff.Sleep(ctx, 50*time.Millisecond) != nil {
			end()
			return nil, unavailablef("INTERRUPTED", ctx.Err(), "interrupted: no plugin was there")
		}
	}
	return end, nil
}

// config returns the settings of the check, or the mistake in the command line.
func (c *pluginCheckCommand) config(a *app) (conformance.Config, error) {
	config := conformance.Config{
		Subject: c.Subject, Type: handoff.ProposalType(c.Type), Argument: c.Argument,
		Timeout: c.Within, Restart: c.Restart,
		Ask: func(request string) { fmt.Fprintln(a.err, request) },
	}
	parts := strings.Split(c.Subject, ".")
	if len(parts) != 5 || c.Subject != wire.ApplySubject(parts[2], parts[4]) {
		return config, usagef("the subject must be a town's, %s, not %s",
			wire.ApplySubject("<world>", "<town token>"), show(c.Subject))
	}
	token := parts[4]
	if c.Within <= 0 || c.Restart < 0 {
		return config, usagef("--within must be above 0, and --restart must not be below 0")
	}
	if !a.json() {
		config.Finished = func(r conformance.Row) {
			fmt.Fprintf(a.out, "%-5s %-16s %s\n", strings.ToUpper(string(r.Verdict)), r.Name,
				show(r.Found))
			if r.Verdict == conformance.Fail {
				fmt.Fprintf(a.out, "      %-16s the rule: %s\n", "", r.Rule)
				fmt.Fprintf(a.out, "      %-16s to do: %s\n", "", r.Todo)
			}
		}
	}
	if c.Snapshot == "" {
		townID, err := percent.Decode(token)
		if err != nil || townID == "" || strings.ContainsAny(token, "=*>") {
			return config, usagef("the subject must end with the token of one town; if that is " +
				"a hash, give --snapshot")
		}
		config.Town = town.NewState(&town.Snapshot{
			SchemaVersion: town.SchemaVersion, TownID: townID,
			SideQuests: []town.SideQuest{}, Projects: []town.Project{},
		})
		return config, nil
	}
	var err error
	if config.Town, err = a.readTown(c.Snapshot); err != nil {
		return config, err
	}
	if townID := config.Town.Snapshot.TownID; wire.TownToken(townID) != token {
		return config, usagef("the subject is not of the town %q, whose token is %s", townID,
			wire.TownToken(townID))
	}
	return config, nil
}

// conclude prints the counts, and fails if a rule is broken.
func (c *pluginCheckCommand) conclude(a *app, rows []conformance.Row) error {
	count := map[string]int{}
	for _, r := range rows {
		count[string(r.Verdict)]++
	}
	if rows[0].Answer == apply.Refused {
		a.notef("the plugin refused the first command, so no command was seen that it applies: " +
			"choose one with --type, --argument and --snapshot")
	}
	broken := count[string(conformance.Fail)]
	return cmp.Or(a.print(map[string]any{"subject": c.Subject, "rules": rows}, "plugin check", count),
		failedIf(broken > 0, "the plugin breaks %d of %d rules", broken, len(rows)))
}

// tests returns a test for each rule.
func (c *pluginCheckCommand) tests(rows []conformance.Row) (tests []junit.Case) {
	for _, r := range rows {
		one := junit.Case{Suite: c.Subject, Name: r.Name, Class: "plugin check",
			Seconds: fmt.Sprintf("%.3f", r.Took.Seconds())}
		switch r.Verdict {
		case conformance.Fail:
			one.Failure = &junit.Text{Message: r.Found, Text: r.Rule + " " + r.Todo}
		case conformance.Skip:
			one.Skipped = &junit.Text{Message: r.Found}
		}
		tests = append(tests, one)
	}
	return tests
}

// pluginTryCommand is a plugin by hand: the person at the terminal answers for the game server.
type pluginTryCommand struct {
	Town   []string `help:"Take the commands of this town; may be given several times. All towns of the world by default." sep:"none" placeholder:"TOWN"`
	Answer string   `help:"The answer: applied, refused, refused-retryable, busy, in-progress, silence, or ask, which reads a line of standard input for each command. By default ask on a terminal, and applied elsewhere." enum:",ask,applied,refused,refused-retryable,busy,in-progress,silence" default:"" placeholder:"ANSWER"`
	Reason string   `help:"Reason code of refused and refused-retryable, ${default} by default." default:"REFUSED_BY_HAND" placeholder:"CODE"`
	Beside bool     `help:"Start even if another plugin hosts the town. Both then apply its commands."`
	State  string   `help:"Keep the answers in this file, so that a restart gives the same ones, as a plugin must. Without it they are forgotten at the end." type:"path" placeholder:"FILE"`
	Count  uint     `help:"End after this many commands, not counting repeated requests; 0 to go on until Ctrl-C." placeholder:"N"`
}

// Validate returns the mistake in the flags.
func (c *pluginTryCommand) Validate() error {
	switch {
	case slices.Contains(c.Town, ""):
		return errors.New("--town must not be empty")
	case !standin.IsReasonCode(c.Reason):
		return fmt.Errorf("--reason must be upper-case words such as PROTECTED_AREA, not %q", c.Reason)
	}
	return nil
}

// Run answers until ctx is done, the count is reached, or standard input ends.
func (c *pluginTryCommand) Run(ctx context.Context, a *app) error {
	if c.Answer == "" && isTerminal(a.in) {
		c.Answer = standin.Ask
	} else if c.Answer == "" {
		c.Answer = "applied"
	}
	memory := plugin.NewVolatileMemory()
	if c.State != "" {
		file, err := plugin.OpenFile(c.State, plugin.FileConfig{})
		if err != nil {
			return usagef("--state: %s", sentence(err))
		}
		defer func() { _ = file.Close() }()
		memory = file
	}
	nc, err := a.dial("handoffctl plugin try")
	if err != nil {
		return err
	}
	return standin.Serve(ctx, nc, standin.Config{
		World: a.flags.World, Towns: c.Town, Answer: c.Answer, Reason: c.Reason, Beside: c.Beside, Count: c.Count,
		Memory: memory, Timeout: a.flags.Timeout, JSON: a.json(), In: a.in, Out: a.out, Notes: a.err, Note: a.notef,
	})
}

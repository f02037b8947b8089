package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/plugin"
)

// pluginTryCommand is a plugin by hand: the person at the terminal answers for the game server.
type pluginTryCommand struct {
	Town   []string `help:"Take the commands of this town; may be given several times. All towns of the world by default." sep:"none" placeholder:"TOWN"`
	Answer string   `help:"What to answer: applied, refused, refused-retryable, busy, in-progress, silence, or ask, which takes a line of standard input for each command. By default ask on a terminal, applied elsewhere." enum:",ask,applied,refused,refused-retryable,busy,in-progress,silence" default:"" placeholder:"ANSWER"`
	Reason string   `help:"Reason code of refused and refused-retryable, ${default} by default." default:"REFUSED_BY_HAND" placeholder:"CODE"`
	Beside bool     `help:"Start although another plugin hosts the town: both apply its commands."`
	State  string   `help:"Keep the answers in this file, and answer by it after a restart, as a plugin must; without it they are forgotten at the end." type:"path" placeholder:"FILE"`
	Count  int      `help:"End after this many commands, not counting repeated requests; 0 means go on until Ctrl-C."`
}

func (pluginTryCommand) Help() string {
	return `Stands in for a game server's plugin: it takes the commands that the engine asks a
plugin to apply, shows what each command would change, and answers as --answer says. No game is
changed; the engine records the answers. It answers a repeated request as it answered the first one,
until it ends; with --state also after a restart. A command whose time has passed it refuses for now. It
prints "ready" and its subjects on standard error when commands can come, and does not start if
another plugin says that it hosts the town. With -o json it prints one line for each request.

With --answer ask, type one of these lines for each command:

` + keyHelp + `

Example:

    handoffctl plugin try --town town-threatened`
}

const keyHelp = `    a          applied
    r [CODE]   refused for good: the handoff fails
    R [CODE]   refused, but a new attempt may succeed
    b          busy: not begun; the engine asks again
    p          in progress: begun; the engine asks again
    s          silence: no answer; the engine asks again, then gives up
    ?          this help`

// Run answers until ctx is done, the count is reached, or standard input ends.
func (c *pluginTryCommand) Run(ctx context.Context, a *app) error {
	p, err := c.plugin(a)
	if err != nil {
		return err
	}
	memory, closeMemory, err := c.memory()
	if err != nil {
		return err
	}
	defer closeMemory()
	nc, err := a.dial("handoffctl plugin try")
	if err != nil {
		return err
	}
	lost := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(lost) })
	if err := c.mustBeAlone(ctx, a, nc, false); err != nil {
		return err
	}
	served, err := c.serve(ctx, a, nc, p, memory)
	if err != nil {
		return err
	}
	defer closeNow(ctx, served)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	noKeys := make(chan struct{})
	if p.always == nil {
		go readLines(ctx, a.in, p.keys, noKeys)
	}
	close(p.started)
	select {
	case <-ctx.Done():
	case <-noKeys:
	case <-lost:
		return unavailablef("CONNECTION", nil, "the connection to the NATS server is lost, so no "+
			"command can come; start plugin try again")
	case err = <-p.ended:
		_ = nc.FlushTimeout(a.flags.Timeout) // the last answer; if it is lost the engine asks again
	}
	return err
}

// closeNow ends a plugin without waiting for a person.
func closeNow(ctx context.Context, served *plugin.Plugin) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_ = served.Close(ctx)
}

// plugin returns the plugin that the flags describe, or the mistake in them.
func (c *pluginTryCommand) plugin(a *app) (*manualPlugin, error) {
	if c.Count < 0 {
		return nil, usagef("--count must not be below 0, but is %d", c.Count)
	}
	if slices.Contains(c.Town, "") {
		return nil, usagef("--town must not be empty")
	}
	if !validReason(c.Reason) {
		return nil, usagef("--reason must be upper-case words such as PROTECTED_AREA, not %q",
			c.Reason)
	}
	p := &manualPlugin{
		app: a, reason: c.Reason, count: c.Count, keys: make(chan string), times: map[string]int{},
		started: make(chan struct{}), ended: make(chan error, 1),
	}
	switch {
	case c.Answer == "ask" || c.Answer == "" && isTerminal(a.in):
	case c.Answer == "":
		p.always = &reaction{name: "applied"}
	default:
		p.always = &reaction{name: c.Answer, reason: c.Reason}
	}
	return p, nil
}

// memory returns the memory of the answers, and the function that closes it.
func (c *pluginTryCommand) memory() (plugin.Memory, func(), error) {
	if c.State == "" {
		return plugin.NewVolatileMemory(), func() {}, nil
	}
	file, err := plugin.OpenFile(c.State, plugin.FileConfig{})
	if err != nil {
		return nil, nil, usagef("--state: %s", sentence(err))
	}
	return file, func() { _ = file.Close() }, nil
}

// mustBeAlone refuses to host a town that another plugin hosts. It is called before this plugin
// answers the same question, and again after that: if two start at the same time, neither finds the
// other before.
func (c *pluginTryCommand) mustBeAlone(
	ctx context.Context, a *app, nc *nats.Conn, again bool,
) error {
	ask := plugin.Hosts
	if again {
		ask = plugin.OtherHosts
	}
	hosts, err := ask(ctx, nc, a.flags.World, c.Town...)
	if err != nil && !again {
		fmt.Fprintf(a.err, "handoffctl: it is not known whether another plugin hosts the town: "+
			"%s\n", sentence(err))
	}
	if len(hosts) == 0 || c.Beside {
		return nil
	}
	town := "all towns"
	if hosts[0].TownID != "" {
		town = "the town " + strconv.Quote(hosts[0].TownID)
	}
	return unavailablef("HOSTED", nil, "another plugin, whose connection to NATS is named %q, hosts "+
		"%s: both would apply its commands. End that one first, or add --beside", hosts[0].Name, town)
}

// serve starts the plugin, whose commands wait for p.started, and prints "ready" when the server has
// its subscriptions.
func (c *pluginTryCommand) serve(
	ctx context.Context, a *app, nc *nats.Conn, p *manualPlugin, memory plugin.Memory,
) (*plugin.Plugin, error) {
	served, err := plugin.Serve(nc, plugin.Config{
		World: a.flags.World, Towns: c.Town, Apply: p.apply, Recover: p.apply, Answered: p.answered,
		Memory: memory, RetryAfter: manualRetry,
		Concurrency: 1, // a person answers one command after another
		Logger:      slog.New(slog.NewTextHandler(a.err, nil)),
	})
	if err != nil {
		return nil, unavailable("SUBSCRIPTION", err)
	}
	if !c.Beside {
		if err := c.mustBeAlone(ctx, a, nc, true); err != nil {
			closeNow(ctx, served)
			return nil, err
		}
	}
	fmt.Fprintf(a.err, "ready %s\n", strings.Join(plugin.Subjects(a.flags.World, c.Town...), " "))
	return served, nil
}

// readLines sends the lines of in one at a time, and closes ended after the last one.
func readLines(ctx context.Context, in io.Reader, lines chan<- string, ended chan<- struct{}) {
	defer close(ended)
	for scanner := bufio.NewScanner(in); scanner.Scan(); {
		select {
		case lines <- scanner.Text():
		case <-ctx.Done():
			return
		}
	}
}

// reaction is an answer to a command: a name as in --answer, and a reason code.
type reaction struct{ name, reason string }

// reactionTo reads a line of the keyboard.
func reactionTo(line, reason string) (reaction, error) {
	words := strings.Fields(line)
	names := map[string]string{
		"a": "applied", "r": "refused", "R": "refused-retryable", "b": "busy",
		"p": "in-progress", "s": "silence",
	}
	if len(words) == 0 || names[words[0]] == "" || len(words) > 2 {
		return reaction{}, errors.New("the answers are:\n" + keyHelp)
	}
	v := reaction{names[words[0]], reason}
	if len(words) == 2 && !strings.HasPrefix(v.name, "refused") {
		return reaction{}, fmt.Errorf("%s takes no reason code", words[0])
	}
	if len(words) == 2 {
		v.reason = words[1]
	}
	if !validReason(v.reason) {
		return reaction{}, fmt.Errorf("a reason code is upper-case words such as PROTECTED_AREA, "+
			"not %q",
			v.reason)
	}
	return v, nil
}

// manualRetry is the pause that busy and in-progress ask the engine to make.
const manualRetry = time.Second

// answer returns the answer to a command, nil for silence.
func (v reaction) answer(c *apply.Command) *apply.Answer {
	var answer apply.Answer
	switch v.name {
	case "applied":
		answer = apply.Done(c)
	case "refused", "refused-retryable":
		answer = apply.Refuse(c, v.reason, "Refused by handoffctl plugin try.",
			v.name == "refused-retryable")
	case "busy", "in-progress":
		answer = apply.Later(c, apply.Status(v.name), manualRetry)
	default:
		return nil
	}
	return &answer
}

// validReason reports whether an answer may have a reason code.
func validReason(code string) bool {
	c := &apply.Command{ApplyID: "handoff_" + strings.Repeat("0", 64)}
	answer := apply.Refuse(c, code, "", false)
	data, err := answer.MarshalWire()
	if err == nil && code != "" {
		_, err = apply.ParseAnswer(data, c.ApplyID, schemas.Limits{})
	}
	return err == nil && code != ""
}

// manualPlugin answers the commands of the engine as a person, or --answer, says, one at a time.
type manualPlugin struct {
	app     *app
	reason  string        // the reason code if a key gives none
	always  *reaction     // nil asks for each command
	count   int           // of commands after which it ends; 0 for never
	keys    chan string   // the lines of the person
	started chan struct{} // closed when commands may be answered
	ended   chan error    // has room for one

	mu    sync.Mutex
	times map[string]int // requests of each command since its last outcome, by applyId
	shown string         // the applyId of the command that the person was asked about
	done  int            // commands that got their reaction, without repeats
}

// apply returns the reaction to a command.
func (p *manualPlugin) apply(ctx context.Context, c *apply.Command) (apply.Answer, error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return apply.Answer{}, apply.ErrUnavailable
	}
	v, err := p.always, error(nil)
	if v == nil {
		v, err = p.ask(ctx, c)
	}
	if err != nil {
		return apply.Answer{}, err
	}
	if answer := v.answer(c); answer != nil {
		return *answer, nil
	}
	return apply.Answer{}, plugin.ErrNoAnswer
}

// ask shows a command, and returns the reaction that the person types.
func (p *manualPlugin) ask(ctx context.Context, c *apply.Command) (*reaction, error) {
	p.mu.Lock()
	err := p.describe(c, p.forPeople())
	p.shown = c.ApplyID
	p.mu.Unlock()
	for err == nil {
		fmt.Fprint(p.app.err, "  a, r [CODE], R [CODE], b, p, s or ? > ")
		select {
		case line := <-p.keys:
			v, wrong := reactionTo(line, p.reason)
			if wrong == nil {
				return &v, nil
			}
			fmt.Fprintln(p.app.err, wrong)
		case <-ctx.Done():
			return nil, plugin.ErrNoAnswer
		}
	}
	p.end(err)
	return nil, plugin.ErrNoAnswer
}

// forPeople is the output that the person at the keyboard reads.
func (p *manualPlugin) forPeople() io.Writer {
	if p.app.json() {
		return p.app.err
	}
	return p.app.out
}

// end ends the program, with the first error if there is one.
func (p *manualPlugin) end(err error) {
	select {
	case p.ended <- err:
	default:
	}
}

// answered reports an answer.
func (p *manualPlugin) answered(c *apply.Command, answer *apply.Answer, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.report(c, answer, again)
	if !again {
		delete(p.times, c.ApplyID)
		p.shown = ""
		p.done++
	}
	if err != nil || p.count > 0 && p.done == p.count {
		p.end(err)
	}
}

// triedRequest is the line of a request with -o json.
type triedRequest struct {
	ApplyID          string               `json:"applyId"`
	RunID            string               `json:"runId"`
	LogicalAttemptID int64                `json:"logicalAttemptId"`
	TownID           string               `json:"townId"`
	ActorID          string               `json:"actorId"`
	Type             handoff.ProposalType `json:"type"`
	Argument         string               `json:"argument"`
	Changes          []handoff.Difference `json:"changes"`
	// Repeat reports that the request was answered as before, or that the command still waits.
	Repeat bool `json:"repeat"`
	// Answer is null for silence.
	Answer *apply.Answer `json:"answer"`
}

// report shows an answer.
func (p *manualPlugin) report(c *apply.Command, answer *apply.Answer, again bool) error {
	if p.app.json() {
		return p.app.printJSON(triedRequest{
			c.ApplyID, c.RunID, c.LogicalAttemptID, c.TownID, c.ActorID, c.Type, c.Argument(),
			changesBetween(c.Snapshot, c.ExpectedSnapshot), again, answer,
		})
	}
	text := "silence"
	if answer != nil {
		text = strings.TrimSpace(string(answer.Status) + " " + answer.ReasonCode)
	}
	switch {
	case again && (answer.Status == apply.Busy || answer.Status == apply.InProgress):
		p.times[c.ApplyID]++ // the answer to the command will say so
		return nil
	case again:
		return p.app.printf("%s  %s  repeat of %.20s…, attempt %d -> %s\n",
			time.Now().Format(clockFormat), show(c.TownID), c.ApplyID, c.LogicalAttemptID, text)
	}
	if p.shown != c.ApplyID {
		if err := p.describe(c, p.app.out); err != nil {
			return err
		}
	}
	if more := p.times[c.ApplyID]; more > 0 {
		text += fmt.Sprintf(" (asked %d times)", 1+more)
	}
	return p.app.printf("  -> %s\n", text)
}

// describe shows a command.
func (p *manualPlugin) describe(c *apply.Command, w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s %s  (%.20s…, attempt %d, %s left)\n",
		time.Now().Format(clockFormat), show(c.TownID), show(c.ActorID), c.Type,
		show(c.Argument()), c.ApplyID, c.LogicalAttemptID,
		time.Duration(min(c.TimeoutMs, 1e9))*time.Millisecond)
	for _, found := range changesBetween(c.Snapshot, c.ExpectedSnapshot) {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s: %s -> %s\n", show(found.Path), show(orNone(found.Before)),
				show(orNone(found.After)))
		}
	}
	return err
}

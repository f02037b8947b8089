package handoffctl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/plugin"
)

// pluginTryCommand is a plugin by hand: the person at the terminal answers for the game server.
type pluginTryCommand struct {
	Town   []string `help:"Take the commands of this town; may be given several times. All towns of the world by default." sep:"none" placeholder:"TOWN"`
	Answer string   `help:"The answer: applied, refused, refused-retryable, busy, in-progress, silence, or ask, which reads a line of standard input for each command. By default ask on a terminal, and applied elsewhere." enum:",ask,applied,refused,refused-retryable,busy,in-progress,silence" default:"" placeholder:"ANSWER"`
	Reason string   `help:"Reason code of refused and refused-retryable, ${default} by default." default:"REFUSED_BY_HAND" placeholder:"CODE"`
	Beside bool     `help:"Start even if another plugin hosts the town. Both then apply its commands."`
	State  string   `help:"Keep the answers in this file, so that a restart gives the same ones, as a plugin must. Without it they are forgotten at the end." type:"path" placeholder:"FILE"`
	Count  uint     `help:"End after this many commands, not counting repeated requests; 0 to go on until Ctrl-C." placeholder:"N"`
}

func (pluginTryCommand) Help() string {
	return `Stands in for a game server's plugin: it takes the commands that the engine sends to a
plugin, shows the changes that each one would make, and gives the answer of --answer. It changes no
game; the engine records the answers. A repeated request gets the same answer as the first one until
the program ends, or longer with --state. A command past its deadline is refused for now. When
commands can arrive, it prints "ready" and its subjects on standard error. It does not start if
another plugin hosts the town. With -o json it prints one line for each request.

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

// Validate returns the mistake in the flags.
func (c *pluginTryCommand) Validate() error {
	switch {
	case slices.Contains(c.Town, ""):
		return errors.New("--town must not be empty")
	case !reasonCode.MatchString(c.Reason):
		return fmt.Errorf("--reason must be upper-case words such as PROTECTED_AREA, not %q", c.Reason)
	}
	return nil
}

// Run answers until ctx is done, the count is reached, or standard input ends.
func (c *pluginTryCommand) Run(ctx context.Context, a *app) error {
	if c.Answer == "" && isTerminal(a.in) {
		c.Answer = "ask"
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
	lost := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(lost) })
	p := &manualPlugin{
		pluginTryCommand: c, app: a, keys: make(chan string), times: map[string]int{},
		started: make(chan struct{}), ended: make(chan error, 1),
	}
	served, err := plugin.Serve(nc, plugin.Config{
		World: a.flags.World, Towns: c.Town, Apply: p.apply, Recover: p.apply, Answered: p.answered,
		Memory: memory, RetryAfter: manualRetry, Beside: c.Beside,
		Concurrency: 1, // a person answers one command after another
		Logger:      slog.New(slog.NewTextHandler(a.err, nil)),
	})
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return unavailablef(permissionDenied, err, "this user may not host these towns: use a user of "+
			"the role plugin, and give --town for each town that it may act on")
	case err != nil:
		return unavailable("SUBSCRIPTION", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // so that Close does not wait for a person
		_ = served.Close(ctx)
	}()
	if !c.Beside {
		if err := c.mustBeAlone(ctx, a, nc); err != nil {
			return err
		}
	}
	fmt.Fprintf(a.err, "ready %s\n", strings.Join(plugin.Subjects(a.flags.World, c.Town...), " "))
	if c.Answer == "ask" {
		go p.readLines(ctx)
	}
	close(p.started)
	select {
	case <-ctx.Done():
	case <-lost:
		return unavailablef("CONNECTION", nil, "the connection to the NATS server is lost, so no "+
			"command can come; start plugin try again")
	case err = <-p.ended:
		_ = nc.FlushTimeout(a.flags.Timeout) // if the last answer is lost, the engine asks again
	}
	return err
}

// mustBeAlone refuses to host a town that another plugin hosts. Commands wait for this check. So if
// two plugins start at the same time, one ends before it answers a command.
func (c *pluginTryCommand) mustBeAlone(ctx context.Context, a *app, nc *nats.Conn) error {
	others, err := plugin.OtherHosts(ctx, nc, a.flags.World, c.Town...)
	if err != nil {
		a.notef("it is not known whether another plugin hosts the town: %s", sentence(err))
	}
	if len(others) == 0 {
		return nil
	}
	town := "all towns"
	if others[0].TownID != "" {
		town = "the town " + strconv.Quote(others[0].TownID)
	} else if len(c.Town) == 0 {
		town = "towns of the world"
	}
	return unavailablef("HOSTED", nil, "another plugin, whose connection to NATS is named %q, hosts "+
		"%s: both would apply its commands. End that one first, or add --beside", others[0].Name, town)
}

// readLines reads the lines of the person, and ends the program after the last one.
func (p *manualPlugin) readLines(ctx context.Context) {
	defer p.end(nil)
	for scanner := bufio.NewScanner(p.app.in); scanner.Scan(); {
		select {
		case p.keys <- scanner.Text():
		case <-ctx.Done():
			return
		}
	}
}

// manualRetry is the pause that busy and in-progress ask the engine to make.
const manualRetry = time.Second

// reasonCode matches the reason codes that an answer may have.
var reasonCode = regexp.MustCompile("^[A-Z][A-Z0-9_]{0,63}$")

// manualPlugin answers one command after another, as a person or --answer says.
type manualPlugin struct {
	*pluginTryCommand
	app     *app
	keys    chan string   // the lines of the person
	started chan struct{} // closed when commands may be answered
	ended   chan error    // has room for one error

	mu    sync.Mutex
	times map[string]int // requests of each command since its last outcome, by applyId
	shown string         // the applyId of the command that the person was asked about
	done  uint           // commands that got their answer, without repeats
}

// apply returns the answer to a command.
func (p *manualPlugin) apply(ctx context.Context, c *apply.Command) (apply.Answer, error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return apply.Answer{}, apply.ErrUnavailable
	}
	name, reason := p.Answer, p.Reason
	if name == "ask" {
		name, reason = p.ask(ctx, c)
	}
	switch name {
	case "applied":
		return apply.Done(c), nil
	case "refused", "refused-retryable":
		return apply.Refuse(c, reason, "Refused by handoffctl plugin try.",
			name == "refused-retryable"), nil
	case "busy", "in-progress":
		return apply.Later(c, apply.Status(name), manualRetry), nil
	}
	return apply.Answer{}, plugin.ErrNoAnswer
}

// ask shows a command, and returns the answer that the person types, "" for none.
func (p *manualPlugin) ask(ctx context.Context, c *apply.Command) (name, reason string) {
	p.mu.Lock()
	forPeople := p.app.out
	if p.app.json() {
		forPeople = p.app.err
	}
	_, err := io.WriteString(forPeople, commandText(c))
	p.shown = c.ApplyID
	p.mu.Unlock()
	for err == nil {
		fmt.Fprint(p.app.err, "  a, r [CODE], R [CODE], b, p, s or ? > ")
		select {
		case line := <-p.keys:
			name, reason, wrong := p.typed(line)
			if wrong == nil {
				return name, reason
			}
			fmt.Fprintln(p.app.err, wrong)
		case <-ctx.Done():
			return "", ""
		}
	}
	p.end(err)
	return "", ""
}

// typed reads a line of the keyboard: a name as in --answer, and a reason code.
func (p *manualPlugin) typed(line string) (name, reason string, err error) {
	words := strings.Fields(line)
	names := map[string]string{
		"a": "applied", "r": "refused", "R": "refused-retryable", "b": "busy",
		"p": "in-progress", "s": "silence",
	}
	if len(words) == 0 || names[words[0]] == "" || len(words) > 2 {
		return "", "", errors.New("the answers are:\n" + keyHelp)
	}
	name, reason = names[words[0]], p.Reason
	if len(words) == 1 {
		return name, reason, nil
	}
	if !strings.HasPrefix(name, "refused") {
		return "", "", fmt.Errorf("%s takes no reason code", words[0])
	}
	if reason = words[1]; !reasonCode.MatchString(reason) {
		return "", "", fmt.Errorf("a reason code is upper-case words such as PROTECTED_AREA, not %q",
			reason)
	}
	return name, reason, nil
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
	if err != nil || p.Count > 0 && p.done == p.Count {
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
	// Repeat is set if the answer is the one given before, or if the command still waits for it.
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
		p.times[c.ApplyID]++ // shown with the answer, as a count
		return nil
	case again:
		return p.app.printf("%s  %s  repeat of %.20s…, attempt %d -> %s\n",
			time.Now().Format(clockFormat), show(c.TownID), c.ApplyID, c.LogicalAttemptID, text)
	}
	shown := ""
	if p.shown != c.ApplyID {
		shown = commandText(c)
	}
	if more := p.times[c.ApplyID]; more > 0 {
		text += fmt.Sprintf(" (asked %d times)", 1+more)
	}
	return p.app.printf("%s  -> %s\n", shown, text)
}

// commandText returns a command and the changes that it makes, for people.
func commandText(c *apply.Command) string {
	text := fmt.Sprintf("%s  %s  %s  %s %s  (%.20s…, attempt %d, %s left)\n",
		time.Now().Format(clockFormat), show(c.TownID), show(c.ActorID), c.Type,
		show(c.Argument()), c.ApplyID, c.LogicalAttemptID,
		time.Duration(min(c.TimeoutMs, 1e9))*time.Millisecond)
	for _, found := range changesBetween(c.Snapshot, c.ExpectedSnapshot) {
		text += fmt.Sprintf("  %s: %s\n", show(found.Path), changeOf(found))
	}
	return text
}

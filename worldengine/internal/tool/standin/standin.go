// Package standin stands in for a game server's plugin: a person, or one answer for all, in place of the game.
package standin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/termtext"
	"worldengine/worldengine/plugin"
)

// Config is the plugin to stand in for.
type Config struct {
	World  string
	Towns  []string // none for all towns
	Answer string   // applied, refused, refused-retryable, busy, in-progress, silence, or Ask
	Reason string   // the reason code of refused and refused-retryable
	Beside bool     // serve even if another plugin hosts the towns
	Count  uint     // how many commands to answer, not counting repeated requests; 0 for no end
	Memory plugin.Memory
	// Timeout bounds the wait until the last answer is sent.
	Timeout time.Duration

	In    io.Reader // the lines of the person, for Ask
	Out   io.Writer // gets the commands and the answers
	JSON  bool      // in JSON
	Notes io.Writer // gets the log, the questions and "ready"
	Note  func(format string, args ...any)
}

// Ask is the answer of a line that a person types for each command.
const Ask = "ask"

// KeyHelp has the lines that a person may type.
const KeyHelp = `    a          applied
    r [CODE]   refused for good: the handoff fails
    R [CODE]   refused, but a new attempt may succeed
    b          busy: not begun; the engine asks again
    p          in progress: begun; the engine asks again
    s          silence: no answer; the engine asks again, then gives up
    ?          this help`

// Serve answers until ctx is done, the count is reached, or the lines of the person end.
func Serve(ctx context.Context, nc *nats.Conn, config Config) error {
	lost := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(lost) })
	p := &standIn{
		Config: config, keys: make(chan string), times: map[string]int{},
		started: make(chan struct{}), ended: make(chan error, 1),
	}
	served, err := plugin.Serve(nc, plugin.Config{
		World: p.World, Towns: p.Towns, Apply: p.apply, Recover: p.apply, Answered: p.answered,
		Memory: p.Memory, RetryAfter: retryInterval, Beside: p.Beside,
		Concurrency: 1, // a person answers one command after another
		Logger:      slog.New(slog.NewTextHandler(p.Notes, nil)),
	})
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return unavailable("PERMISSION_DENIED", err, "this user may not host these towns: use a user of "+
			"the role plugin, and give --town for each town that it may act on")
	case err != nil:
		return unavailable("SUBSCRIPTION", err, "%s", phrase.Sentence(err))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // so that Close does not wait for a person
		_ = served.Close(ctx)
	}()
	if !p.Beside {
		if err := p.mustBeAlone(ctx, nc); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.Notes, "ready %s\n", strings.Join(plugin.Subjects(p.World, p.Towns...), " "))
	if p.Answer == Ask {
		go p.readLines(ctx)
	}
	close(p.started)
	select {
	case <-ctx.Done():
	case <-lost:
		return unavailable("CONNECTION", nil, "the connection to the NATS server is lost, so no "+
			"command can come; start plugin try again")
	case err = <-p.ended:
		_ = nc.FlushTimeout(p.Timeout) // if the last answer is lost, the engine asks again
	}
	return err
}

func unavailable(code string, cause error, format string, args ...any) error {
	return &client.UnavailableError{Code: code, Cause: cause, Message: fmt.Sprintf(format, args...)}
}

// mustBeAlone refuses to host a town that another plugin hosts. Commands wait for this check. So if
// two plugins start at the same time, one ends before it answers a command.
func (p *standIn) mustBeAlone(ctx context.Context, nc *nats.Conn) error {
	others, err := plugin.OtherHosts(ctx, nc, p.World, p.Towns...)
	if err != nil {
		p.Note("it is not known whether another plugin hosts the town: %s", phrase.Sentence(err))
	}
	if len(others) == 0 {
		return nil
	}
	town := "all towns"
	if others[0].TownID != "" {
		town = "the town " + strconv.Quote(others[0].TownID)
	} else if len(p.Towns) == 0 {
		town = "towns of the world"
	}
	return unavailable("HOSTED", nil, "another plugin, whose connection to NATS is named %q, hosts "+
		"%s: both would apply its commands. End that one first, or add --beside", others[0].Name, town)
}

// readLines reads the lines of the person, and ends the program after the last one.
func (p *standIn) readLines(ctx context.Context) {
	defer p.end(nil)
	for scanner := bufio.NewScanner(p.In); scanner.Scan(); {
		select {
		case p.keys <- scanner.Text():
		case <-ctx.Done():
			return
		}
	}
}

// retryInterval is the pause that busy and in-progress ask the engine to make.
const retryInterval = time.Second

// IsReasonCode reports whether a text is a reason code that an answer may have.
var IsReasonCode = regexp.MustCompile("^[A-Z][A-Z0-9_]{0,63}$").MatchString

// standIn answers one command after another, as a person or Config.Answer says.
type standIn struct {
	Config
	keys    chan string   // the lines of the person
	started chan struct{} // closed when commands may be answered
	ended   chan error    // has room for one error

	mu    sync.Mutex
	times map[string]int // requests of each command since its last outcome, by applyId
	shown string         // the applyId of the command that the person was asked about
	done  uint           // commands that got their answer, without repeats
}

// apply returns the answer to a command.
func (p *standIn) apply(ctx context.Context, c *apply.Command) (apply.GameAnswer, error) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return apply.GameAnswer{}, apply.ErrUnavailable
	}
	name, reason := p.Answer, p.Reason
	if name == Ask {
		name, reason = p.ask(ctx, c)
	}
	switch name {
	case "applied":
		return apply.Done(c), nil
	case "refused", "refused-retryable":
		return apply.Refuse(c, reason, "Refused by handoffctl plugin try.",
			name == "refused-retryable"), nil
	case "busy", "in-progress":
		return apply.Later(c, apply.Status(name), retryInterval), nil
	}
	return apply.GameAnswer{}, plugin.ErrNoAnswer
}

// ask shows a command, and returns the answer that the person types, "" for none.
func (p *standIn) ask(ctx context.Context, c *apply.Command) (name, reason string) {
	p.mu.Lock()
	forPeople := p.Out
	if p.JSON {
		forPeople = p.Notes
	}
	_, err := io.WriteString(forPeople, commandText(c))
	p.shown = c.ApplyID
	p.mu.Unlock()
	for err == nil {
		fmt.Fprint(p.Notes, "  a, r [CODE], R [CODE], b, p, s or ? > ")
		select {
		case line := <-p.keys:
			name, reason, wrong := p.typed(line)
			if wrong == nil {
				return name, reason
			}
			fmt.Fprintln(p.Notes, wrong)
		case <-ctx.Done():
			return "", ""
		}
	}
	p.end(err)
	return "", ""
}

// typed reads a line of the keyboard: a name as in --answer, and a reason code.
func (p *standIn) typed(line string) (name, reason string, err error) {
	words := strings.Fields(line)
	names := map[string]string{
		"a": "applied", "r": "refused", "R": "refused-retryable", "b": "busy",
		"p": "in-progress", "s": "silence",
	}
	if len(words) == 0 || names[words[0]] == "" || len(words) > 2 {
		return "", "", errors.New("the answers are:\n" + KeyHelp)
	}
	name, reason = names[words[0]], p.Reason
	if len(words) == 1 {
		return name, reason, nil
	}
	if !strings.HasPrefix(name, "refused") {
		return "", "", fmt.Errorf("%s takes no reason code", words[0])
	}
	if reason = words[1]; !IsReasonCode(reason) {
		return "", "", fmt.Errorf("a reason code is upper-case words such as PROTECTED_AREA, not %q",
			reason)
	}
	return name, reason, nil
}

// end ends the program, with the first error if there is one.
func (p *standIn) end(err error) {
	select {
	case p.ended <- err:
	default:
	}
}

// answered reports an answer.
func (p *standIn) answered(c *apply.Command, answer *apply.GameAnswer, again bool) {
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

// Request is the line of a request with -o json.
type Request struct {
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
	Answer *apply.GameAnswer `json:"answer"`
}

// report shows an answer.
func (p *standIn) report(c *apply.Command, answer *apply.GameAnswer, again bool) error {
	if p.JSON {
		line, err := json.Marshal(Request{
			c.ApplyID, c.RunID, c.LogicalAttemptID, c.TownID, c.ActorID, c.Type, c.Argument(),
			changesBetween(c.Snapshot, c.ExpectedSnapshot), again, answer,
		}, json.Deterministic(true))
		if err == nil {
			_, err = p.Out.Write(append(line, '\n'))
		}
		return err
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
		return p.print("%s  %s  repeat of %.20s…, attempt %d -> %s\n", clock(), termtext.Text(c.TownID),
			c.ApplyID, c.LogicalAttemptID, text)
	}
	shown := ""
	if p.shown != c.ApplyID {
		shown = commandText(c)
	}
	if more := p.times[c.ApplyID]; more > 0 {
		text += fmt.Sprintf(" (asked %d times)", 1+more)
	}
	return p.print("%s  -> %s\n", shown, text)
}

// commandText returns a command and the changes that it makes, for people.
func commandText(c *apply.Command) string {
	text := fmt.Sprintf("%s  %s  %s  %s %s  (%.20s…, attempt %d, %s left)\n",
		clock(), termtext.Text(c.TownID), termtext.Text(c.ActorID), c.Type,
		termtext.Text(c.Argument()), c.ApplyID, c.LogicalAttemptID,
		time.Duration(min(c.TimeoutMs, 1e9))*time.Millisecond)
	for _, found := range changesBetween(c.Snapshot, c.ExpectedSnapshot) {
		text += fmt.Sprintf("  %s: %s\n", termtext.Text(found.Path), termtext.Change(found.Before, found.After))
	}
	return text
}

func (p *standIn) print(format string, args ...any) error {
	_, err := fmt.Fprintf(p.Out, format, args...)
	return err
}

func clock() string { return time.Now().Format("15:04:05.000") }

// changesBetween returns the differences of two states of a town, in the order of the paths. In a
// path, the members of a list are named by their ids.
func changesBetween(before, after *town.Snapshot) []handoff.Difference {
	return append([]handoff.Difference{},
		handoff.Differences(treeOf(before), treeOf(after), false)...)
}

// treeOf returns a snapshot as a tree of objects: its lists are objects by id.
func treeOf(s *town.Snapshot) any {
	tree, err := schemas.Decode(town.NewState(s).Canonical, schemas.Limits{})
	if err != nil {
		return nil // a snapshot that was read before can be read again
	}
	root := tree.(map[string]any)
	for name, value := range root {
		list, ok := value.([]any)
		if !ok {
			continue
		}
		byID := map[string]any{}
		for _, member := range list {
			id, _ := member.(map[string]any)["id"].(string)
			byID[id] = member
		}
		root[name] = byID
	}
	return root
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/cmd/handoffctl/internal/client"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/plugin"
)

// pluginTryCommand is a toy plugin: the person at the terminal is the game server.
type pluginTryCommand struct {
	Town   []string `help:"Only this town; may be given several times. All towns of the world by default." sep:"none" placeholder:"TOWN"`
	Answer string   `help:"What to answer: applied, refused, refused-retryable, busy, in-progress, silence, or ask, which takes a line of standard input for each command. By default ask on a terminal, applied elsewhere." enum:",ask,applied,refused,refused-retryable,busy,in-progress,silence" default:"" placeholder:"ANSWER"`
	Reason string   `help:"Reason code of refused and refused-retryable, ${default} by default." default:"REFUSED_BY_HAND" placeholder:"CODE"`
	Count  int      `help:"End after this many commands, without repeats of what was answered; 0 goes on until Ctrl-C."`
}

// Help is the command's long help.
func (pluginTryCommand) Help() string {
	return `Plays the game server's plugin: takes the commands that the engine asks a plugin to apply, shows
what each is to change, and answers as told. A repeated request is answered as before. Nothing is
remembered over its end. It is ready when standard error says so. With -o json: a line a request.

The lines of --answer ask:

` + keyHelp + `

Example:

    handoffctl plugin try --town town-threatened`
}

const keyHelp = `    a          applied
    r [CODE]   refused for good
    R [CODE]   refused, a new attempt makes sense
    b          busy: not begun, ask again
    p          in progress: begun, ask again
    s          silence: no answer
    ?          this help`

// Run serves until ctx is done, the count is reached, or there is nobody to ask any more.
func (c *pluginTryCommand) Run(ctx context.Context, a *app) error {
	toy, err := c.toy(a)
	if err != nil {
		return err
	}
	nc, err := a.dial("handoffctl plugin try")
	if err != nil {
		return err
	}
	defer nc.Close()
	lost := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(lost) })
	requests, err := c.subscribe(a, nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, noKeys := make(chan string), make(chan struct{})
	if toy.always == nil {
		go readLines(ctx, a.in, keys, noKeys)
	}
	for c.Count == 0 || toy.told < c.Count {
		var asked chan string // only while there is something to ask
		if len(toy.waiting) > 0 {
			asked = keys
		}
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return &client.UnavailableError{Code: "CONNECTION", Message: "the connection is lost and given up"}
		case <-noKeys:
			return nil
		case msg := <-requests:
			err = toy.take(msg)
		case line := <-asked:
			err = toy.key(line)
		}
		if err != nil {
			return err
		}
	}
	_ = nc.FlushTimeout(a.flags.Timeout) // the last answer; where it is lost the engine asks again
	return nil
}

// toy checks the flags.
func (c *pluginTryCommand) toy(a *app) (*toyPlugin, error) {
	if c.Count < 0 {
		return nil, usagef("--count must not be below 0, but is %d", c.Count)
	}
	if err := worldengine.ValidateWorld(a.flags.World); err != nil {
		return nil, usagef("--world: %s", sentence(err))
	}
	for _, townID := range c.Town {
		if townID == "" {
			return nil, usagef("--town must not be empty")
		}
	}
	if !validReason(c.Reason) {
		return nil, usagef("--reason must be upper-case words such as PROTECTED_AREA, not %q", c.Reason)
	}
	toy := &toyPlugin{app: a, reason: c.Reason, memory: plugin.NewVolatileMemory(), now: time.Now}
	switch {
	case c.Answer == "ask" || c.Answer == "" && isTerminal(a.in):
	case c.Answer == "":
		toy.always = &reaction{name: "applied"}
	default:
		toy.always = &reaction{name: c.Answer, reason: c.Reason}
	}
	return toy, nil
}

// subscribe takes the towns' requests, and says when the server knows of it.
func (c *pluginTryCommand) subscribe(a *app, nc *nats.Conn) (<-chan *nats.Msg, error) {
	requests := make(chan *nats.Msg, 256)
	subjects := plugin.Subjects(a.flags.World, c.Town...)
	var err error
	for _, subject := range subjects {
		_, subscribed := nc.ChanSubscribe(subject, requests)
		err = errors.Join(err, subscribed)
	}
	err = errors.Join(err, nc.Flush())
	if last := nc.LastError(); err == nil && errors.Is(last, nats.ErrPermissionViolation) {
		err = last
	}
	if err != nil {
		return nil, &client.UnavailableError{Code: "SUBSCRIPTION", Message: sentence(err), Cause: err}
	}
	fmt.Fprintf(a.err, "ready %s\n", strings.Join(subjects, " "))
	return requests, nil
}

// readLines hands lines over as they are asked for, and closes ended after the last one.
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

// reaction is what a command is to be answered.
type reaction struct{ name, reason string }

// reactionTo reads a line of the keyboard.
func reactionTo(line, reason string) (reaction, error) {
	words := strings.Fields(line)
	names := map[string]string{
		"a": "applied", "r": "refused", "R": "refused-retryable", "b": "busy", "p": "in-progress", "s": "silence",
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
		return reaction{}, fmt.Errorf("a reason code is upper-case words such as PROTECTED_AREA, not %q", v.reason)
	}
	return v, nil
}

// toyRetry is when busy and in-progress ask the engine to come back.
const toyRetry = time.Second

// answer returns the answer to a command, nil for silence.
func (v reaction) answer(c *apply.Command) *apply.Answer {
	var answer apply.Answer
	switch v.name {
	case "applied":
		answer = apply.Done(c)
	case "refused", "refused-retryable":
		answer = apply.Refuse(c, v.reason, "Refused by handoffctl plugin try.", v.name == "refused-retryable")
	case "busy", "in-progress":
		answer = apply.Later(c, apply.Status(v.name), toyRetry)
	default:
		return nil
	}
	return &answer
}

// validReason says whether the wire takes a reason code.
func validReason(code string) bool {
	c := &apply.Command{ApplyID: "handoff_" + strings.Repeat("0", 64)}
	answer := apply.Refuse(c, code, "", false)
	data, err := answer.MarshalWire()
	if err == nil && code != "" {
		_, err = apply.ParseAnswer(data, c.ApplyID, schemas.Limits{})
	}
	return err == nil && code != ""
}

package handoffctl

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"worldengine/worldengine/internal/tool/standin"
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

package plugin

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"worldengine/schemas"
	"worldengine/worldengine/internal/core/apply"
)

var errNoRecover = errors.New("plugin: the command was begun before, and Config.Recover is not set")

// outcome applies a command at most once. The memory MUST have the command as begun, durably, before Apply is called:
// then a crash in between leaves a command in doubt, which is recovered and never applied again. outcome returns nil
// if the request gets no answer. It is called for one command of a town at a time.
func (p *Plugin) outcome(r request) *Answer {
	c := r.command
	p.mu.Lock()
	before, known := p.recall(c.ApplyID)
	p.mu.Unlock()
	begun := known && before.Unfinished()
	switch {
	case begun && p.ctx.Err() != nil:
		return new(Later(c, InProgress, p.config.RetryAfter))
	case begun:
		return p.askRecover(c)
	case p.ctx.Err() != nil:
		return new(Later(c, Busy, p.config.RetryAfter))
	}
	if why := p.expired(&r); why != "" {
		return p.remember(c, Refuse(c, ReasonDeadlinePassed, why, true))
	}
	if err := p.put(p.record(c, nil)); err != nil {
		p.config.Logger.Error("the memory cannot be written, so a command is not begun",
			"applyId", c.ApplyID, "error", err)
		return new(Refuse(c, ReasonMemoryFailed, "The plugin's memory cannot be written.",
			true))
	}
	// From here on the command may be in the game.
	return p.askApply(c)
}

// expired returns a message if a command's time is over, else "". timeoutMs is exact, except for the
// time that the request was on its way. The deadline is by the engine's clock, so it counts only if
// it passed longer ago than ClockSkew.
func (p *Plugin) expired(r *request) string {
	now := p.config.Now()
	if !now.Before(r.until) {
		return "The command's time was over before its turn came."
	}
	if late := now.Sub(r.command.Deadline); late > p.config.ClockSkew {
		return fmt.Sprintf("The deadline passed %s ago by the clock of the game server's machine; "+
			"if that is wrong, set the clocks.", late.Round(time.Second))
	}
	return ""
}

func (p *Plugin) askApply(c *Command) *Answer {
	answer, err := p.call(p.config.Apply, c)
	if errors.Is(err, ErrUnavailable) {
		p.config.Logger.Warn("a command reached no console or game", "applyId", c.ApplyID, "town",
			c.TownID, "error", err)
		answer, err = Later(c, Busy, p.config.RetryAfter), nil
	}
	return p.keepOutcome(c, answer, err)
}

func (p *Plugin) askRecover(c *Command) *Answer {
	if p.config.Recover == nil {
		return p.keepOutcome(c, Answer{}, errNoRecover)
	}
	answer, err := p.call(p.config.Recover, c)
	return p.keepOutcome(c, answer, err)
}

// keepOutcome remembers the answer of Apply or Recover. If there is none, the command stays begun and
// the next request calls Recover; without Recover the command is refused for good.
func (p *Plugin) keepOutcome(c *Command, answer Answer, err error) *Answer {
	switch {
	case err == nil && answer.Status != InProgress:
		return p.remember(c, answer)
	case errors.Is(err, ErrNoAnswer) && p.config.Recover != nil:
		return nil
	}
	if err != nil {
		p.config.Logger.Error("it is not known whether a command is applied", "applyId", c.ApplyID,
			"run", c.RunID, c.Trace.LogAttr(), "town", c.TownID, "type", string(c.Type), "argument",
			c.Argument(), "error", err)
		answer = Later(c, InProgress, p.config.RetryAfter)
	}
	if p.config.Recover != nil {
		return &answer
	}
	return p.remember(c, Refuse(c, ReasonOutcomeUnknown,
		"The plugin began this command and does not know whether it is in the game: compare, and "+
			"town.put the true state.", false))
}

// call calls a function of the config and completes its answer for the wire. A panic is an error.
func (p *Plugin) call(f Func, c *Command) (answer Answer, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("plugin: Apply or Recover panicked: %v\n%s", v, debug.Stack())
		}
	}()
	if answer, err = f(p.ctx, c); err != nil {
		return answer, err
	}
	answer.SchemaVersion, answer.ApplyID = apply.AnswerVersion, c.ApplyID
	data, err := answer.MarshalWire()
	if err == nil {
		answer, err = apply.ParseAnswer(data, c.ApplyID, schemas.Limits{})
	}
	if err != nil {
		return answer, fmt.Errorf("plugin: the answer of Apply or Recover is not valid: %w", err)
	}
	return answer, nil
}

// remember writes a command's outcome to the memory, and returns it. If that fails, this process
// still knows the outcome; for the next process the command is in doubt.
func (p *Plugin) remember(c *Command, answer Answer) *Answer {
	record := p.record(c, &answer)
	if err := p.put(record); err != nil {
		p.mu.Lock()
		p.unwritten[c.ApplyID] = record
		p.mu.Unlock()
		p.config.Logger.Error("the outcome of a command cannot be written to the memory",
			"applyId", c.ApplyID, "status", string(answer.Status), "error", err)
	}
	return &answer
}

// put writes a record to the memory. The record supersedes an unwritten one.
func (p *Plugin) put(record Record) error {
	if err := p.config.Memory.Put(record); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unwritten, record.ApplyID)
	return nil
}

func (p *Plugin) record(c *Command, answer *Answer) Record {
	return Record{
		ApplyID: c.ApplyID, TownID: c.TownID, Attempt: c.LogicalAttemptID, At: p.config.Now(),
		Answer: answer,
	}
}

// recall returns a command's record. The caller holds mu.
func (p *Plugin) recall(applyID string) (Record, bool) {
	if record, ok := p.unwritten[applyID]; ok {
		return record, true
	}
	return p.config.Memory.Get(applyID)
}

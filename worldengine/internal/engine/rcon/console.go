package rcon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
)

// quietPart is the part of the timeout after which a command may have no answer: long enough that few
// commands of a busy game are answered later.
const quietPart = 4

// Console applies commands on one game server, one at a time. It is safe for concurrent use.
type Console struct {
	cfg      Config
	commands map[handoff.ProposalType][]template
	quiet    time.Duration // see link
	// turn has room for one value. The goroutine that puts the value in owns the link.
	turn chan struct{}
	link *link // nil while there is no connection
}

// New returns the console of cfg. The first Apply connects. The error is a *schemas.ValidationError
// with the paths of a configuration file.
func New(cfg Config) (*Console, error) {
	commands, err := compile(&cfg)
	if err != nil {
		return nil, fmt.Errorf("rcon: the configuration is wrong: %w", err)
	}
	cfg.Names = maps.Clone(cfg.Names)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	return &Console{
		cfg: cfg, commands: commands, quiet: cfg.Timeout / quietPart, turn: make(chan struct{}, 1),
	}, nil
}

// Apply implements apply.Console. It waits for its turn, logs in, calls begin, and runs the console
// commands in order, each after the response to the one before. c must be valid.
//
// The answer is applied if every response matches its Expect. It is refused, with one of this
// package's reasons, if nothing was done and a new attempt would be refused again. The error wraps
// apply.ErrUnavailable if nothing was done and c may be applied later. It wraps apply.ErrInDoubt if
// the first command may have been sent: c must not be applied again. If ctx ends, the error is one
// of these two.
func (k *Console) Apply(
	ctx context.Context, c *apply.Command, begin func() bool,
) (apply.Answer, error) {
	templates := k.commands[c.Type]
	if len(templates) == 0 {
		return apply.Refuse(c, ReasonNotConfigured, "The console has no commands for "+
			string(c.Type)+".", false), nil
	}
	lines := make([]string, len(templates))
	for i := range templates {
		var err error
		if lines[i], err = templates[i].render(c, k.cfg.Names); err != nil {
			return apply.Refuse(c, ReasonUnsafeArgument, "Not for a console: "+err.Error()+".",
				false), nil
		}
	}
	select {
	case k.turn <- struct{}{}:
		defer k.end()
	case <-ctx.Done():
		return apply.Answer{}, unavailable(fmt.Errorf("rcon: the console was busy: %w",
			context.Cause(ctx)))
	}
	if err := k.connect(ctx); err != nil {
		return apply.Answer{}, unavailable(err)
	}
	if !begin() {
		return apply.Answer{}, unavailable(errNotBegun)
	}
	for i, line := range lines {
		response, left, err := k.link.command(ctx, line)
		if err != nil {
			k.drop()
			if i == 0 && !left {
				return apply.Answer{}, unavailable(err)
			}
			return apply.Answer{}, k.doubtError(lines, i, err)
		}
		response = strings.TrimRight(response, "\r\n") // some servers end each message with a line end
		if templates[i].expects(response) {
			continue
		}
		answered := k.excerpt(response)
		if i > 0 {
			return apply.Answer{}, k.doubtError(lines, i,
				fmt.Errorf("%w: %s", errUnexpected, answered))
		}
		return apply.Refuse(c, ReasonUnexpectedResponse,
			fmt.Sprintf("The game server answered %s to command 1 of %d.", answered, len(lines)),
			false), nil
	}
	return apply.Done(c), nil
}

// doubtError returns the error if lines[done] may have been done, after all lines before it.
func (k *Console) doubtError(lines []string, done int, err error) error {
	return fmt.Errorf("%w: rcon: %d of %d commands were answered as expected; then at %s: %w",
		apply.ErrInDoubt, done, len(lines), k.excerpt(lines[done]), err)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", apply.ErrUnavailable, err) }

// Close waits for the command that is being applied, and closes the connection. A later Apply opens
// another one.
func (k *Console) Close() {
	k.turn <- struct{}{}
	defer k.end()
	k.drop()
}

func (k *Console) end() { <-k.turn }

// connect logs in, on the open link if there is one. The login shows whether the link still works
// before a command is risked on it: the server may have restarted.
func (k *Console) connect(ctx context.Context) error {
	password := string(k.cfg.Password)
	if k.link != nil {
		if k.link.login(ctx, password) == nil {
			return nil
		}
		k.drop()
	}
	l, err := dial(ctx, k.cfg.Address, k.cfg.Timeout, k.quiet)
	if err != nil {
		return err
	}
	if err := l.login(ctx, password); err != nil {
		l.close()
		return fmt.Errorf("rcon: no login at %s: %w", k.cfg.Address, err)
	}
	k.link = l
	return nil
}

func (k *Console) drop() {
	if k.link != nil {
		k.link.close()
		k.link = nil
	}
}

// excerpt quotes the beginning of text without the password.
func (k *Console) excerpt(text string) string {
	password := k.cfg.Password
	return excerpt(strings.ReplaceAll(text, string(password), fmt.Sprint(password)))
}

// maxExcerpt bounds a quotation of text from outside, in bytes.
const maxExcerpt = 200

// excerpt quotes the beginning of text in ASCII.
func excerpt(text string) string {
	if len(text) > maxExcerpt {
		return strconv.QuoteToASCII(text[:maxExcerpt]) + "..."
	}
	return strconv.QuoteToASCII(text)
}

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

// New returns the console of cfg. The first Login connects. The error is a *schemas.ValidationError
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

// Login implements apply.Console. It waits for its turn, and logs in. c must be valid.
//
// Without a login a command is refused, with one of this package's reasons, if a new attempt would be
// refused again. The error wraps apply.ErrUnavailable, also if ctx ends: c may be applied later.
func (k *Console) Login(
	ctx context.Context, c *apply.Command,
) (apply.Session, *apply.GameAnswer, error) {
	refuse := func(reason, why string) (apply.Session, *apply.GameAnswer, error) {
		return nil, new(apply.Refuse(c, reason, why, false)), nil
	}
	s := &session{console: k, command: c, templates: k.commands[c.Type]}
	if len(s.templates) == 0 {
		return refuse(ReasonNotConfigured, "The console has no commands for "+string(c.Type)+".")
	}
	for i := range s.templates {
		line, err := s.templates[i].render(c, k.cfg.Names)
		if err != nil {
			return refuse(ReasonUnsafeArgument, "Not for a console: "+err.Error()+".")
		}
		s.lines = append(s.lines, line)
	}
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, unavailable(fmt.Errorf("rcon: the console was busy: %w", context.Cause(ctx)))
	}
	if err := k.connect(ctx); err != nil {
		k.releaseTurn()
		return nil, nil, unavailable(err)
	}
	return s, nil, nil
}

// session is a console that is logged in for one command. It has the console's turn.
type session struct {
	console   *Console
	command   *apply.Command
	templates []template
	lines     []string // of the templates
}

// Close implements apply.Session.
func (s *session) Close() { s.console.releaseTurn() }

// Send implements apply.Session. It runs the console commands in order, each after the response to the
// one before.
//
// The answer is applied if every response matches its Expect. It is refused if the first response does
// not: nothing was done. The error wraps apply.ErrUnavailable if nothing was sent, and
// apply.ErrInDoubt if the first command may have been sent: it must not be applied again. If ctx ends,
// the error is one of these two.
func (s *session) Send(ctx context.Context) (apply.GameAnswer, error) {
	k := s.console
	defer k.releaseTurn()
	for i, line := range s.lines {
		response, sent, err := k.link.command(ctx, line)
		if err != nil {
			k.drop()
			if i == 0 && !sent {
				return apply.GameAnswer{}, unavailable(err)
			}
			return apply.GameAnswer{}, k.doubtError(s.lines, i, err)
		}
		response = strings.TrimRight(response, "\r\n") // some servers end each message with a line end
		if s.templates[i].expects(response) {
			continue
		}
		answered := k.excerpt(response)
		if i > 0 {
			return apply.GameAnswer{}, k.doubtError(s.lines, i,
				fmt.Errorf("%w: %s", errUnexpected, answered))
		}
		return apply.Refuse(s.command, ReasonUnexpectedResponse,
			fmt.Sprintf("The game server answered %s to command 1 of %d.", answered, len(s.lines)),
			false), nil
	}
	return apply.Done(s.command), nil
}

// doubtError returns the error if lines[done] may have been done, after all lines before it.
func (k *Console) doubtError(lines []string, done int, err error) error {
	return fmt.Errorf("%w: rcon: %d of %d commands were answered as expected; then at %s: %w",
		apply.ErrInDoubt, done, len(lines), k.excerpt(lines[done]), err)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", apply.ErrUnavailable, err) }

// Close waits for the command that is being applied, and closes the connection. A later Login opens
// another one.
func (k *Console) Close() {
	k.turn <- struct{}{}
	defer k.releaseTurn()
	k.drop()
}

func (k *Console) releaseTurn() { <-k.turn }

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

package rcon

import "errors"

// The reason codes of a refusal. In each case nothing was changed in the game, and a new attempt
// would be refused again.
const (
	// ReasonNotConfigured: the configuration has no commands for the proposal's type.
	ReasonNotConfigured = "RCON_NOT_CONFIGURED"
	// ReasonUnsafeArgument: a value is neither in the configuration's names nor an id of harmless
	// characters. The operator adds it to the names, or no agent proposes it again.
	ReasonUnsafeArgument = "RCON_UNSAFE_ARGUMENT"
	// ReasonUnexpectedResponse: the answer to the first command does not match its expect, by which
	// the operator says that it did nothing.
	ReasonUnexpectedResponse = "RCON_UNEXPECTED_RESPONSE"
)

// Errors of the connection. Apply wraps each together with apply.ErrUnavailable or
// apply.ErrInDoubt, which say how to go on.
var (
	// ErrLoginRefused: the game server does not take the password. Compare it with rcon.password in
	// server.properties; a restart of this program reads it again.
	ErrLoginRefused = errors.New("rcon: the game server refuses the password")
	// ErrProtocol: the answer is not RCON as Minecraft speaks it. Check that the address has the
	// rcon.port, not the game's port.
	ErrProtocol = errors.New("rcon: the other side does not speak RCON")
	// ErrTimeout: the configured timeout passed without an answer.
	ErrTimeout = errors.New("rcon: no answer within the timeout")
	// ErrClosed: the Console was closed.
	ErrClosed = errors.New("rcon: the console is closed")
	// errNotBegun: the caller of Apply did not let the command begin.
	errNotBegun = errors.New("rcon: the command was not begun")
	// errUnexpected: an answer does not match its expect, after commands that did.
	errUnexpected = errors.New("rcon: the answer does not match expect")
)

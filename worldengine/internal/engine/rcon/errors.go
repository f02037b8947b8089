package rcon

import "errors"

// The reason codes of a refusal. The game is unchanged, and a new attempt would be refused again.
const (
	// ReasonNotConfigured: the configuration has no commands for the proposal's type.
	ReasonNotConfigured = "RCON_NOT_CONFIGURED"
	// ReasonUnsafeArgument: a value is neither in the configuration's names nor an id of harmless
	// characters. The operator may add it to the names.
	ReasonUnsafeArgument = "RCON_UNSAFE_ARGUMENT"
	// ReasonUnexpectedResponse: the response to the first command does not match its expect, so the
	// command did nothing.
	ReasonUnexpectedResponse = "RCON_UNEXPECTED_RESPONSE"
)

// Errors of the connection. Login and Send wrap each one together with apply.ErrUnavailable or
// apply.ErrInDoubt.
var (
	// ErrLoginRefused means that the game server refuses the password. Compare it with rcon.password in
	// server.properties, and restart this program.
	ErrLoginRefused = errors.New("rcon: the game server refuses the password")
	// ErrProtocol means that the answer is not Minecraft's RCON. Check that the address has the rcon.port, not
	// the game's port.
	ErrProtocol = errors.New("rcon: the other side does not speak RCON")
	// ErrTimeout means that the configured timeout passed without an answer.
	ErrTimeout = errors.New("rcon: no answer within the timeout")
	// errUnexpected: the response to a later command does not match its expect.
	errUnexpected = errors.New("rcon: the answer does not match expect")
)

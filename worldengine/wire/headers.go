package wire

// Headers of a reply.
const (
	// RunIDHeader is the ID of the run, on the reply to a handoff.
	RunIDHeader = "Run-Id"
	// ResultRevisionHeader is the revision of the result in the reply, 0 or 1. On a request it asks
	// for that revision.
	ResultRevisionHeader = "Execution-Result-Revision"
	// DryRunHeader is "true" on a handoff that is only to be judged: nothing is stored. The reply has
	// it too. An old server, which does not know this header, executes the handoff.
	DryRunHeader = "Dry-Run"
	// DryRunApplyHeader is "plugin" or "rcon" on a dry run's reply, if a game would apply the command.
	// The result is then the one that the rules expect; the game may decide otherwise.
	DryRunApplyHeader = "Dry-Run-Apply"
	// RetryAfterHeader is how many milliseconds a 429 or 503 asks the client to wait.
	RetryAfterHeader = "Retry-After-Ms"
	// ErrorCodeHeader is the status of an error reply, such as 404. NATS micro defines its name.
	ErrorCodeHeader = "Nats-Service-Error-Code"
	// ErrorHeader is the message of an error reply: one line of printable ASCII.
	ErrorHeader = "Nats-Service-Error"
)

// EventTypeHeader is the eventType of a run event on the bus.
const EventTypeHeader = "Event-Type"

// AskerHeader names the connection that asks who hosts a town, so that the connection does not
// answer itself.
const AskerHeader = "Asker"

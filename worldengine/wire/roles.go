package wire

// Role is the kind of a user.
type Role string

// The roles.
const (
	Agent    Role = "agent"
	Plugin   Role = "plugin"
	Operator Role = "operator"
	Approver Role = "approver"
	Observer Role = "observer"
	Engine   Role = "engine"
)

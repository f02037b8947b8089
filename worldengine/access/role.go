package access

import (
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// Role is the kind of a user. A role allows verbs (wire.VerbSpec) and subjects (PermissionsOf).
type Role = wire.Role

// The roles, which package wire declares.
const (
	Agent    = wire.Agent
	Plugin   = wire.Plugin
	Operator = wire.Operator
	Approver = wire.Approver
	Observer = wire.Observer
	Engine   = wire.Engine
)

// Roles returns all roles.
func Roles() []Role { return wire.Roles() }

// User is a user who may connect. Exactly one of NKey, PasswordHash and Password is set.
type User struct {
	// Name is the user name, and part of the user's inbox; 1 to 64 of A-Z a-z 0-9 _ -.
	Name string
	Role Role
	// NKey is the public key of a user without a password.
	NKey string
	// PasswordHash is the bcrypt hash of the password, and Password the password itself if it came
	// from PasswordEnv or a file.
	PasswordHash schemas.Secret
	Password     schemas.Secret
	PasswordEnv  string
	// Towns are the ids of the towns that the user may act on; empty for all.
	Towns []string
	// Actors are the actorIds that the user may speak for; empty for all.
	Actors []string
	// Read are the ids of the towns that the user may read; empty for all.
	Read []string
}

// ID is how NATS names the user of a connection: the NKey if there is one, or else the name.
func (u *User) ID() string {
	if u.NKey != "" {
		return u.NKey
	}
	return u.Name
}

// InboxPrefix returns how the user's inboxes begin, so that no other user reads its replies.
// Clients have to set it: NATS_INBOX_PREFIX, nats.CustomInboxPrefix.
func (u *User) InboxPrefix() string { return wire.InboxPrefix(u.Name) }

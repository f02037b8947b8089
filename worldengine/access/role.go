package access

import (
	"slices"

	"worldengine/worldengine/wire"
)

// Role is the kind of a user. A role allows verbs and subjects (grants, PermissionsOf).
type Role string

// The roles.
const (
	// Agent proposes: it sends handoffs and reads.
	Agent Role = "agent"
	// Plugin applies commands in a game, and reports what is true there.
	Plugin Role = "plugin"
	// Operator does everything but write to the streams.
	Operator Role = "operator"
	// Approver decides about proposals that wait for a person's approval, and reads.
	Approver Role = "approver"
	// Observer reads.
	Observer Role = "observer"
	// Engine does everything. It is for repairs (handoffctl fsck --repair) and for handoffd itself.
	Engine Role = "engine"
)

// Roles returns all roles.
func Roles() []Role { return []Role{Agent, Plugin, Operator, Approver, Observer, Engine} }

// rolesWith returns the roles that have something.
func rolesWith(has func(Role) bool) []Role {
	return slices.DeleteFunc(Roles(), func(r Role) bool { return !has(r) })
}

// IsClient reports whether users of the role are in the clients' account.
func (r Role) IsClient() bool {
	return r == Agent || r == Plugin || r == Approver || r == Observer
}

// hasTowns reports whether the rights of a user of the role may be bound to towns, and hasActors to
// actors.
func (r Role) hasTowns() bool  { return r == Agent || r == Plugin || r == Approver }
func (r Role) hasActors() bool { return r == Agent }

// hasRead reports whether what users of the role read may be bound to towns.
func (r Role) hasRead() bool { return r.IsClient() }

// User is a user who may connect. Exactly one of NKey, PasswordHash and Password is set.
type User struct {
	// Name is the user name, and part of the user's inbox; 1 to 64 of A-Z a-z 0-9 _ -.
	Name string
	Role Role
	// NKey is the public key of a user without a password.
	NKey string
	// PasswordHash is the bcrypt hash of the password, and Password the password itself, where it
	// came from PasswordEnv or a file.
	PasswordHash Secret
	Password     Secret
	PasswordEnv  string
	// Towns are the ids of the towns that the user may act on; empty for all.
	Towns []string
	// Actors are the actorIds that the user may speak for; empty for all.
	Actors []string
	// Read are the ids of the towns that the user may read; empty for all.
	Read []string
}

// ID is how NATS names the user of a connection: the NKey where there is one, or else the name.
func (u *User) ID() string {
	if u.NKey != "" {
		return u.NKey
	}
	return u.Name
}

// InboxPrefix returns how the user's inboxes begin, so that no other user reads its replies.
// Clients have to be told: NATS_INBOX_PREFIX, nats.CustomInboxPrefix.
func (u *User) InboxPrefix() string { return wire.InboxPrefix(u.Name) }

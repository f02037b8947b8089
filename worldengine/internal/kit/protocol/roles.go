package protocol

import (
	"slices"

	"worldengine/worldengine/wire"
)

// RoleSpec declares a role. VerbSpec names the roles that may send a verb.
type RoleSpec struct {
	Role wire.Role
	// Client is set if the users of the role are in the clients' account.
	Client bool
	// Worlds, Towns, Actors and Read are set if the access file's list of that name may bound the role's
	// users.
	Worlds, Towns, Actors, Read bool
	// Does is the purpose, for the docs.
	Does string
}

var roleSpecs = []RoleSpec{
	{Role: wire.Agent, Client: true, Worlds: true, Towns: true, Actors: true, Read: true,
		Does: "proposes: sends handoffs, and reads"},
	{Role: wire.Plugin, Client: true, Worlds: true, Towns: true, Read: true,
		Does: "applies commands in a game, and reports the true state there"},
	{Role: wire.Operator, Worlds: true, Does: "does everything but write to the streams"},
	{Role: wire.Approver, Client: true, Worlds: true, Towns: true, Read: true,
		Does: "decides about proposals that wait for a person's approval, and reads"},
	{Role: wire.Observer, Client: true, Worlds: true, Read: true, Does: "reads"},
	{Role: wire.Engine, Does: "does everything: for `handoffctl fsck --repair`, and `handoffd` itself"},
}

// Roles returns all roles.
func Roles() []wire.Role {
	roles := make([]wire.Role, len(roleSpecs))
	for i := range roleSpecs {
		roles[i] = roleSpecs[i].Role
	}
	return roles
}

// LookupRole returns the declaration of a role; the zero RoleSpec if it is unknown.
func LookupRole(r wire.Role) RoleSpec {
	i := slices.IndexFunc(roleSpecs, func(s RoleSpec) bool { return s.Role == r })
	if i < 0 {
		return RoleSpec{}
	}
	return roleSpecs[i]
}

package access

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Errors of requests that NATS allows and the rights of the user do not cover.
var (
	// ErrForbidden means that the user has no right to act on the town. Nothing was judged.
	ErrForbidden = errors.New("access: this user may not act on that town")
	// ErrUnreadable means that the user has no right to read the town, its runs or its results.
	ErrUnreadable = errors.New("access: this user may not read that town")
	// ErrWorldUnreadable means that the request is about the whole world, and the user may read only some
	// towns.
	ErrWorldUnreadable = errors.New("access: this is about the whole world, and this user may " +
		"read some of its towns only: ask as a user without `read` in the access file")
	// ErrVerbForbidden means that the role of the user has no right to the verb, or NATS does not say which
	// user of the access file made the request.
	ErrVerbForbidden = errors.New("access: this user may not make this request")
	// ErrActorNotAllowed means that the user may not speak for the actor. Nothing was judged.
	ErrActorNotAllowed = errors.New("access: this user may not speak for that actor")
)

// Rights bound a request; the zero value allows everything. They do not change and are safe for
// concurrent use.
type Rights struct {
	noRights            bool
	user                string
	role                wire.Role // empty for all
	worlds              []string  // names and patterns; empty for all
	towns, actors, read []string
}

// rightsOf returns the rights of a user's requests in the clients' account. A bound of the user that is forgotten here
// would bound nothing.
func rightsOf(u *User) Rights {
	return Rights{
		noRights: !protocol.LookupRole(u.Role).Client, user: u.Name, role: u.Role, worlds: u.Worlds,
		towns: u.Towns, actors: u.Actors, read: u.Read,
	}
}

// Identity returns the sender of a request with these rights.
func (r Rights) Identity() messages.Identity {
	id := messages.Identity{
		User: r.user, Role: r.role, Worlds: r.worlds, Towns: r.towns, Actors: r.actors,
		Read: r.read,
	}
	for _, verb := range protocol.Verbs() {
		if r.CheckVerb(verb) == nil {
			id.Verbs = append(id.Verbs, verb)
		}
	}
	return id
}

// User returns the name of the user; "" if it is unknown.
func (r Rights) User() string { return r.user }

// Sender names the sender of a request: the user or, if it is unknown, its role; "" without access
// control.
func (r Rights) Sender() string { return cmp.Or(r.user, string(r.role)) }

// CheckVerb returns nil, or ErrVerbForbidden if the request may not ask the verb.
func (r Rights) CheckVerb(verb wire.Verb) error {
	if r.noRights || r.role != "" && !slices.Contains(protocol.LookupVerb(verb).Roles, r.role) {
		return fmt.Errorf("%w: %s", ErrVerbForbidden, verb)
	}
	return nil
}

// CheckTown returns nil, or ErrForbidden if the request may not act on a town.
func (r Rights) CheckTown(id string) error {
	return r.check(r.towns, id, ErrForbidden)
}

// check returns nil, or an error if the request has no rights or an id is not among those allowed; with none
// allowed it may be any.
func (r Rights) check(allowed []string, id string, forbidden error) error {
	if r.noRights || len(allowed) > 0 && !slices.Contains(allowed, id) {
		return fmt.Errorf("%w: %q", forbidden, id)
	}
	return nil
}

// CheckMember returns nil, or ErrVerbForbidden if the request may not set a member of a town that only
// operators set: a plugin, which reports a town's state, may not remove the approval that agents
// need, or change who applies commands.
func (r Rights) CheckMember(member string) error {
	if r.noRights || r.role != "" && r.role != wire.Operator && r.role != wire.Engine {
		return fmt.Errorf("%w: only an operator sets `%s`", ErrVerbForbidden, member)
	}
	return nil
}

// CheckActor returns nil, or ErrActorNotAllowed if the request may not speak for an actor.
func (r Rights) CheckActor(id string) error {
	return r.check(r.actors, id, ErrActorNotAllowed)
}

// Readable returns the ids of the towns that the request may read: nil for all, an empty list for
// none. The caller must not change them.
func (r Rights) Readable() []string {
	switch {
	case r.noRights:
		return []string{}
	case len(r.read) > 0:
		return r.read
	}
	return nil
}

// ReadableOf is Readable for a request about a town, or with "" about all towns. The error is
// ErrUnreadable.
func (r Rights) ReadableOf(townID string) ([]string, error) {
	if townID == "" {
		return r.Readable(), nil
	}
	return []string{townID}, r.CheckRead(townID)
}

// CheckReadWorld returns nil, or ErrWorldUnreadable if the request may not read every town.
func (r Rights) CheckReadWorld() error {
	if r.Readable() != nil {
		return ErrWorldUnreadable
	}
	return nil
}

// CheckRead returns nil, or ErrUnreadable if the request may not read a town. The error is the same for
// every town.
func (r Rights) CheckRead(id string) error { return r.CheckReadToken(wire.TownToken(id)) }

// CheckReadToken is CheckRead for a town token.
func (r Rights) CheckReadToken(token string) error {
	towns := r.Readable()
	same := func(id string) bool { return wire.TownToken(id) == token }
	if towns == nil || slices.ContainsFunc(towns, same) {
		return nil
	}
	return ErrUnreadable
}

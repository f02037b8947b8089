package access

import (
	"errors"
	"fmt"
	"slices"

	"worldengine/worldengine/wire"
)

// Errors of requests that NATS lets through, but the rights of the user do not cover.
var (
	// ErrForbidden: the user has no right to act on the town. Nothing was judged.
	ErrForbidden = errors.New("access: this user may not act on that town")
	// ErrUnreadable: the user has no right to read the town, its runs or its results.
	ErrUnreadable = errors.New("access: this user may not read that town")
	// ErrWorldUnreadable: the request is about the whole world, and the user may read some towns.
	ErrWorldUnreadable = errors.New("access: this is about the whole world, and this user may " +
		"read some of its towns only: ask as a user without `read` in the access file")
	// ErrVerbForbidden: the role of the user has no right to the verb, or NATS does not say which
	// user of the access file made the request.
	ErrVerbForbidden = errors.New("access: this user may not make this request")
	// ErrActorNotAllowed: the user may not speak for the actor. Nothing was judged.
	ErrActorNotAllowed = errors.New("access: this user may not speak for that actor")
)

// Rights are what a request may do; the zero value is everything. Rights do not change and are safe
// for concurrent use.
type Rights struct {
	noRights            bool
	user                string
	role                Role // empty for all
	towns, actors, read []string
}

// Identity says who sent a request, and what it may do.
type Identity struct {
	// User is the name in the access file. It is empty without access control, and in the world's
	// account if the answer does not go to the inbox of one of its users.
	User string
	// Role is empty without access control.
	Role Role
	// Towns, Actors and Read bound the rights as in User; empty for all.
	Towns, Actors, Read []string
	// Verbs are those that may be asked.
	Verbs []wire.Verb
}

// Identity returns who sent a request with these rights. A request that is not bound to a role is
// an operator's, where there is access control.
func (r Rights) Identity(d *Directory) Identity {
	if d != nil && r.role == "" {
		r.role = Operator
	}
	id := Identity{User: r.user, Role: r.role, Towns: r.towns, Actors: r.actors, Read: r.read}
	for _, verb := range wire.Verbs() {
		if r.Verb(verb) == nil {
			id.Verbs = append(id.Verbs, verb)
		}
	}
	return id
}

// Verb returns nil, or ErrVerbForbidden where the request may not ask the verb.
func (r Rights) Verb(verb wire.Verb) error {
	if r.noRights || r.role != "" && !slices.Contains(verb.Spec().Roles, r.role) {
		return fmt.Errorf("%w: %s", ErrVerbForbidden, verb)
	}
	return nil
}

// Town returns nil, or ErrForbidden where the request may not act on a town.
func (r Rights) Town(id string) error {
	if r.noRights || len(r.towns) > 0 && !slices.Contains(r.towns, id) {
		return fmt.Errorf("%w: %q", ErrForbidden, id)
	}
	return nil
}

// Govern returns nil, or ErrVerbForbidden if the request may not set a member of a town that only
// operators set: who reports a town's state may not remove the approval that its agents need, or
// change who applies its commands.
func (r Rights) Govern(member string) error {
	if r.noRights || r.role != "" && r.role != Operator && r.role != Engine {
		return fmt.Errorf("%w: only an operator sets `%s`", ErrVerbForbidden, member)
	}
	return nil
}

// Actor returns nil, or ErrActorNotAllowed where the request may not speak for an actor.
func (r Rights) Actor(id string) error {
	if r.noRights || len(r.actors) > 0 && !slices.Contains(r.actors, id) {
		return fmt.Errorf("%w: %q", ErrActorNotAllowed, id)
	}
	return nil
}

// Readable returns the towns that the request may read; bound is false where it may read all.
func (r Rights) Readable() (towns []string, bound bool) {
	return r.read, r.noRights || len(r.read) > 0
}

// ReadWorld returns nil, or ErrWorldUnreadable where the request may not read every town.
func (r Rights) ReadWorld() error {
	if _, bound := r.Readable(); bound {
		return ErrWorldUnreadable
	}
	return nil
}

// Read returns nil, or ErrUnreadable where the request may not read a town.
func (r Rights) Read(id string) error { return r.ReadToken(wire.TownToken(id)) }

// ReadToken does for a town token what Read does for a town. Its error is the same for every town.
func (r Rights) ReadToken(token string) error {
	towns, bound := r.Readable()
	same := func(id string) bool { return wire.TownToken(id) == token }
	if !bound || slices.ContainsFunc(towns, same) {
		return nil
	}
	return ErrUnreadable
}

package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// What a user may not do, though its subject says nothing against it.
var (
	// ErrForbidden says that the user has no right to act on the town. Nothing was judged.
	ErrForbidden = errors.New("access: this user may not act on that town")
	// ErrActorNotAllowed says that the user may not speak for the actor. Nothing was judged.
	ErrActorNotAllowed = errors.New("access: this user may not speak for that actor")
)

// UserHeader is the header in which a NATS server says which user made a request that crosses accounts.
// It replaces whatever the client wrote there.
const UserHeader = "Nats-Request-Info"

// Rights say for which towns and actors a request may speak. The zero value is for all.
type Rights struct {
	nobody        bool
	towns, actors []string
}

// Town returns nil, or ErrForbidden.
func (r Rights) Town(id string) error {
	if r.nobody || len(r.towns) > 0 && !slices.Contains(r.towns, id) {
		return fmt.Errorf("%w: %q", ErrForbidden, id)
	}
	return nil
}

// Actor returns nil, or ErrActorNotAllowed.
func (r Rights) Actor(id string) error {
	if r.nobody || len(r.actors) > 0 && !slices.Contains(r.actors, id) {
		return fmt.Errorf("%w: %q", ErrActorNotAllowed, id)
	}
	return nil
}

// Directory knows the rights of all users. A nil one, of a server without access control, gives
// everybody all rights.
type Directory struct{ byID map[string]Rights }

// NewDirectory returns the directory of users.
func NewDirectory(users []User) *Directory {
	d := &Directory{byID: make(map[string]Rights, len(users))}
	for i := range users {
		u := &users[i]
		d.byID[u.ID()] = Rights{nobody: !u.Role.IsClient(), towns: u.Towns, actors: u.Actors}
	}
	return d
}

// Of returns the rights of whoever made a request with these headers. A request without UserHeader was
// made in the world's own account, where only the engine and operators are, and has all rights. One of
// a user who is not known has none.
func (d *Directory) Of(headers map[string][]string) Rights {
	marks := headers[UserHeader]
	if d == nil || len(marks) == 0 {
		return Rights{}
	}
	var mark struct {
		User string `json:"user"`
	}
	nobody := Rights{nobody: true}
	if len(marks) != 1 || json.Unmarshal([]byte(marks[0]), &mark) != nil {
		return nobody
	}
	rights, known := d.byID[mark.User]
	if !known {
		return nobody
	}
	return rights
}

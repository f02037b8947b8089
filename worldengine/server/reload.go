package server

import (
	"errors"
	"reflect"
	"slices"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine/access"
)

// Reloaded has the changes of a new access file.
type Reloaded struct {
	// Added, Removed and Changed are the names of users, in alphabetical order.
	Added, Removed, Changed []string
	// Ended is how many connections of removed or changed users were ended.
	Ended int
	// TLS reports that the file turns TLS on or off, which requires a restart.
	TLS bool
}

// ErrNoAccess means that a server without access control was given an access file.
var ErrNoAccess = errors.New("server: the server was started without an access file")

// ReloadAccess replaces the users of the server. It ends the connections of removed and changed
// users; changed users may connect again, with their new rights. An existing NATS keeps its
// connections and permissions: only the rights that the engine checks change. New handshakes use
// the current TLS files; connections stay. It is called by one goroutine at a time.
func (s *Server) ReloadAccess(config *access.Config) (Reloaded, error) {
	if s.access == nil {
		return Reloaded{}, ErrNoAccess
	}
	files := config.TLS
	done := Reloaded{TLS: (files != access.TLS{}) != (s.tls != nil)}
	if done.TLS {
		files = s.access.TLS
	} else if s.tls != nil {
		if err := s.tls.load(files); err != nil {
			return Reloaded{}, err
		}
	}
	before, after := byID(s.access.Users), byID(config.Users)
	gone := map[string]bool{}
	for id, u := range before {
		now, there := after[id]
		switch {
		case !there:
			done.Removed = append(done.Removed, u.Name)
		case !reflect.DeepEqual(u, now):
			done.Changed = append(done.Changed, u.Name)
		default:
			continue
		}
		gone[id] = true
	}
	for id, u := range after {
		if _, known := before[id]; !known {
			done.Added = append(done.Added, u.Name)
		}
	}
	for _, names := range [][]string{done.Added, done.Removed, done.Changed} {
		slices.Sort(names)
	}
	if s.embedded != nil {
		if err := s.embedded.accounts.admit(s.embedded.nats, config); err != nil {
			return Reloaded{}, err
		}
	}
	s.config.Service.Access.Replace(config.Users)
	if s.embedded != nil {
		done.Ended = s.embedded.endConnections(gone)
	}
	s.access = &access.Config{TLS: files, Users: config.Users}
	return done, nil
}

// Access returns the access file as it is in force; nil without one.
func (s *Server) Access() *access.Config { return s.access }

func byID(users []access.User) map[string]access.User {
	all := make(map[string]access.User, len(users))
	for _, u := range users {
		all[u.ID()] = u
	}
	return all
}

// endConnections ends the connections of users, and returns their number.
func (e *embedded) endConnections(of map[string]bool) (ended int) {
	if len(of) == 0 {
		return 0
	}
	open, err := e.nats.Connz(&natsserver.ConnzOptions{
		Username: true, Limit: e.nats.NumClients() + DefaultMaxConnections,
	})
	if err != nil {
		return 0 // only for options that are not valid
	}
	for _, c := range open.Conns {
		if of[c.AuthorizedUser] && e.nats.DisconnectClientByID(c.Cid) == nil {
			ended++
		}
	}
	return ended
}

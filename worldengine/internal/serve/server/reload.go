package server

import (
	"errors"
	"reflect"
	"slices"

	"worldengine/worldengine/internal/serve/access"
)

// Reloaded has the changes of a new access file.
type Reloaded struct {
	// Added, Removed and Changed are the names of users, in alphabetical order.
	Added, Removed, Changed []string
	// Ended is how many connections of removed or changed users were ended, and sessions of their
	// language models.
	Ended int
	// TLS reports that the file turns TLS on or off, which requires a restart.
	TLS bool
}

// ErrNoAccess means that a server without access control was given an access file.
var ErrNoAccess = errors.New("server: the server was started without an access file")

// ReloadAccess replaces the users of the server. It ends the connections of removed and changed
// users; changed users may connect again, with their new rights. An existing NATS keeps its
// connections and permissions: only the rights that the engine checks change. New handshakes use
// the current TLS files; connections stay.
func (s *Server) ReloadAccess(config *access.Config) (Reloaded, error) {
	s.accessing.Lock()
	defer s.accessing.Unlock()
	if s.access == nil {
		return Reloaded{}, ErrNoAccess
	}
	files := config.TLS
	done := Reloaded{TLS: (files != access.TLS{}) != (s.tls != nil)}
	if done.TLS {
		files = s.access.TLS
	} else if s.tls != nil {
		if err := s.tls.Reload(files); err != nil {
			return Reloaded{}, err
		}
	}
	gone := done.compare(usersByID(s.access.Users), usersByID(config.Users))
	if s.embedded != nil {
		if err := s.embedded.ReplaceUsers(config, s.granted); err != nil {
			return Reloaded{}, err
		}
	}
	s.config.Service.Access.Replace(config.Users)
	if s.embedded != nil {
		done.Ended = s.embedded.EndConnections(gone)
	}
	if s.models != nil {
		done.Ended += s.models.Reload(config.Users, gone)
	}
	s.access = &access.Config{TLS: files, Users: config.Users}
	return done, nil
}

// compare notes the changes between users by their IDs, and returns the IDs of those whose
// connections have to end.
func (r *Reloaded) compare(before, after map[string]access.User) (gone map[string]bool) {
	gone = map[string]bool{}
	for id, u := range before {
		now, there := after[id]
		switch {
		case !there:
			r.Removed = append(r.Removed, u.Name)
		case !reflect.DeepEqual(u, now):
			r.Changed = append(r.Changed, u.Name)
		default:
			continue
		}
		gone[id] = true
	}
	for id, u := range after {
		if _, known := before[id]; !known {
			r.Added = append(r.Added, u.Name)
		}
	}
	for _, names := range [][]string{r.Added, r.Removed, r.Changed} {
		slices.Sort(names)
	}
	return gone
}

// grantWorlds gives the users of an embedded NATS their permissions among the worlds that exist now.
// If a pattern of a user fits a new world, the user's connections end: clients connect again, with
// the new permissions. The NATS of another process keeps its permissions.
func (s *Server) grantWorlds(worlds func() []string) error {
	s.accessing.Lock()
	defer s.accessing.Unlock()
	before := s.granted
	s.granted = slices.Sorted(slices.Values(worlds())) // under the lock: the last call grants the newest
	if s.embedded == nil || s.access == nil {
		return nil
	}
	gained := map[string]bool{}
	for i := range s.access.Users {
		if u := &s.access.Users[i]; u.Gains(before, s.granted) {
			gained[u.ID()] = true
		}
	}
	return s.embedded.Grant(s.access, s.granted, gained)
}

// Access returns the access file as it is in force; nil without one.
func (s *Server) Access() *access.Config {
	s.accessing.Lock()
	defer s.accessing.Unlock()
	return s.access
}

func usersByID(users []access.User) map[string]access.User {
	all := make(map[string]access.User, len(users))
	for _, u := range users {
		all[u.ID()] = u
	}
	return all
}

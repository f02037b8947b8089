// Package mcphttp serves the worlds to hosts of language models, on the path /mcp of HTTP.
package mcphttp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/phrase"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/mcp"
	"worldengine/worldengine/internal/serve/passwords"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// askTimeout bounds one request of a session to the world. Hosts of language models give up a call after
// a minute or so.
const askTimeout = 25 * time.Second

// Config configures a Gate.
type Config struct {
	// Worlds returns the names of the server's worlds in their order.
	Worlds func() []string
	// Unserved returns why the server does not serve a world now; nil if it does.
	Unserved func(world string) error
	// Connect connects to the world's account, with the prefix of the inboxes, unless it is "".
	Connect func(inbox string) (*nats.Conn, error)
	// Bridge knows the origins that may use the server.
	Bridge *httpd.Bridge
	// Passwords checks passwords, also of the users who sign in elsewhere: wrong ones count together.
	Passwords *passwords.Checker
	// Access has the users who may sign in, and Directory their rights; nil without access control.
	Access    *access.Config
	Directory *access.Directory
	Logger    *slog.Logger
}

// Gate opens the sessions of hosts. A session's requests go over NATS, in the world's account, marked with the
// session's user as NATS marks the requests of clients: so the service decides about rights, as for
// every client. A Gate is safe for concurrent use.
type Gate struct {
	config  Config
	handler *mcp.Handler
	users   atomic.Pointer[modelUsers] // nil without access control

	mu        sync.Mutex
	conns     map[string]*nats.Conn         // by the prefix of their inboxes, "" for the server's own
	towns     map[string]*mcp.TownNotifier  // by world
	proposals map[string]*mcp.OpenProposals // by user
}

// modelUsers are the users who may sign in over HTTP. They do not change: a reload replaces them.
type modelUsers struct {
	byID, byName, byToken map[string]*access.User
}

// New returns a gate without sessions.
func New(config Config) *Gate {
	g := &Gate{config: config, conns: map[string]*nats.Conn{}, towns: map[string]*mcp.TownNotifier{},
		proposals: map[string]*mcp.OpenProposals{}}
	if config.Access != nil {
		g.replaceUsers(config.Access.Users)
	}
	g.handler = mcp.NewHandler(mcp.HandlerConfig{Open: g.openSession})
	return g
}

// replaceUsers replaces the users who may sign in.
func (g *Gate) replaceUsers(users []access.User) {
	known := &modelUsers{map[string]*access.User{}, map[string]*access.User{}, map[string]*access.User{}}
	for i := range users {
		u := &users[i]
		known.byID[u.ID()] = u
		if u.PasswordHash+u.Password != "" {
			known.byName[u.Name] = u
		}
		for _, hash := range u.Tokens {
			known.byToken[string(hash)] = u
		}
	}
	g.users.Store(known)
}

// Reload replaces the users, ends the sessions of those who are gone or changed, by their IDs, and returns
// the number of these sessions.
func (g *Gate) Reload(users []access.User, gone map[string]bool) (ended int) {
	before := g.users.Load().byID
	g.replaceUsers(users)
	ended = g.handler.EndSessions(func(c mcp.Caller) bool { return gone[c.User] })
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range gone {
		delete(g.proposals, id)
		if u := before[id]; u != nil && g.conns[u.InboxPrefix()] != nil { // its unanswered calls end
			g.conns[u.InboxPrefix()].Close()
			delete(g.conns, u.InboxPrefix())
		}
	}
	return ended
}

// ServeHTTP answers a request on /mcp or /mcp/<world>.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.allowOrigin(w, r) {
		return
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	user, ok := g.signIn(w, r)
	if !ok {
		return
	}
	caller := mcp.Caller{World: r.PathValue("world")}
	if user != nil {
		caller.User = user.ID()
	}
	worlds := g.worldsOf(user)
	if caller.World == "" {
		caller.World = wire.DefaultWorld
		if len(worlds) == 1 {
			caller.World = worlds[0]
		}
	}
	if slices.Contains(worlds, caller.World) {
		g.serveWorld(w, r, caller)
		return
	}
	mcp.Refuse(w, http.StatusNotFound, fmt.Sprintf("there is no world %s here: the addresses are /mcp/<world>, or "+
		"/mcp for the only world, else for %s; the worlds are %s", caller.World, wire.DefaultWorld, phrase.List(worlds, len(worlds))))
}

// worldsOf returns the worlds that a user may use; nil is every client without access control.
func (g *Gate) worldsOf(user *access.User) []string {
	return slices.DeleteFunc(g.config.Worlds(), func(world string) bool {
		return user != nil && !user.MayUse(world)
	})
}

// serveWorld answers a request about a world, unless another server of the world serves it.
func (g *Gate) serveWorld(w http.ResponseWriter, r *http.Request, caller mcp.Caller) {
	if err := g.config.Unserved(caller.World); err != nil {
		w.Header().Set("Retry-After", "5")
		mcp.Refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("this server does not serve the world %s now: %v. "+
			"Connect to the server that serves it (its /readyz answers 200), or try again. Nothing was proposed by "+
			"this call", caller.World, err))
		return
	}
	g.handler.Serve(w, r, caller)
}

// allowOrigin reports whether the page that sends a request, if any, may do so. It answers the request
// if not.
func (g *Gate) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	if !g.config.Bridge.Allows(r) {
		mcp.Refuse(w, http.StatusForbidden, fmt.Sprintf("a page of the origin %q may not use this server: start "+
			"handoffd with --websocket-origin for it", r.Header.Get("Origin")))
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", origin)
		header.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		header.Set("Access-Control-Allow-Headers",
			"Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Protocol-Version, Mcp-Session-Id")
		header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id")
		header.Set("Vary", "Origin")
	}
	return true
}

// signIn returns the user of a request; nil without access control. It answers the request if the
// sender may not sign in.
func (g *Gate) signIn(w http.ResponseWriter, r *http.Request) (user *access.User, ok bool) {
	known := g.users.Load()
	if known == nil {
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !at.Addr().Unmap().IsLoopback() {
			mcp.Refuse(w, http.StatusForbidden, "without an access file only this machine may use /mcp: start "+
				"handoffd with --access, and sign in as a user")
			return nil, false
		}
		return nil, true
	}
	scheme, token, hasCredentials := strings.Cut(r.Header.Get("Authorization"), " ")
	name, password, basic := r.BasicAuth()
	switch {
	case basic:
		user = known.byName[name]
		if user == nil || !g.config.Passwords.Right(httpd.ClientAddress(r), storedOf(user), password) {
			user = nil
		}
	case strings.EqualFold(scheme, "Bearer"):
		if user = known.byToken[access.HashToken(strings.TrimSpace(token))]; user == nil {
			g.config.Passwords.CountWrong(httpd.ClientAddress(r))
		}
	}
	if user == nil {
		if hasCredentials { // a host may ask without credentials first, to learn which ones it needs
			httpd.LogRefused(g.config.Logger, r, name)
		}
		w.Header().Add("WWW-Authenticate", `Bearer realm="handoffd"`)
		w.Header().Add("WWW-Authenticate", `Basic realm="handoffd", charset="UTF-8"`)
		mcp.Refuse(w, http.StatusUnauthorized, "sign in as a user of the access file, with Authorization: Bearer and "+
			"a token, or Basic with name and password; these are not right, or there were too many tries")
		return nil, false
	}
	return user, true
}

// storedOf returns a user as package passwords knows it.
func storedOf(u *access.User) passwords.User {
	return passwords.User{Name: u.Name, Stored: string(u.PasswordHash + u.Password)}
}

// openSession returns the configuration of a new session. ?actor= of the address names the actor of its
// proposals, by default the first of the user's actors.
func (g *Gate) openSession(r *http.Request, caller mcp.Caller) (mcp.Config, error) {
	actor := r.URL.Query().Get("actor")
	var user *access.User
	if users := g.users.Load(); users != nil {
		if user = users.byID[caller.User]; user == nil {
			return mcp.Config{}, errors.New("the user is gone")
		}
		if len(user.Actors) > 0 {
			actor = cmp.Or(actor, user.Actors[0])
		}
	}
	c, err := g.clientOf(user, caller.World)
	if err != nil {
		return mcp.Config{}, err
	}
	towns, err := g.townsOf(caller.World)
	if err != nil {
		return mcp.Config{}, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.proposals[caller.User] == nil {
		g.proposals[caller.User] = mcp.NewOpenProposals("", nil)
	}
	return mcp.Config{Client: c, Actor: actor, Open: g.proposals[caller.User], Towns: towns}, nil
}

// clientOf returns a client that asks a world as a user; nil is every client without access control. NATS
// marks no requests of users in the world's account: the owner of the inbox is their user.
func (g *Gate) clientOf(user *access.User, world string) (*client.Client, error) {
	c, inbox := &client.Client{World: world, Timeout: askTimeout}, ""
	switch {
	case user == nil:
	case protocol.LookupRole(user.Role).Client:
		mark, err := json.Marshal(map[string]string{"user": user.ID()})
		if err != nil {
			return nil, err
		}
		c.Header = nats.Header{layout.UserHeader: {string(mark)}}
	default:
		inbox = user.InboxPrefix()
	}
	var err error
	c.Conn, err = g.conn(inbox)
	return c, err
}

// townsOf returns what notices changes of a world's towns. It reads with the rights of the server: a
// session subscribes only to a town that its user may read.
func (g *Gate) townsOf(world string) (*mcp.TownNotifier, error) {
	c, err := g.clientOf(nil, world)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.towns[world] == nil {
		g.towns[world] = mcp.NewTownNotifier(c, g.config.Logger.With("component", "mcp", "world", world))
	}
	return g.towns[world], nil
}

// conn returns the connection of sessions whose inboxes have a prefix. It is made for the first session.
func (g *Gate) conn(inbox string) (*nats.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if nc := g.conns[inbox]; nc != nil {
		return nc, nil
	}
	nc, err := g.config.Connect(inbox)
	if err != nil {
		return nil, fmt.Errorf("mcphttp: NATS lets no language model in: %w: without --access, --clients-user "+
			"and --clients-password are the user that it acts as", err)
	}
	g.conns[inbox] = nc
	return nc, nil
}

// Forget ends the sessions of a world that the server no longer has.
func (g *Gate) Forget(world string) {
	g.handler.EndSessions(func(c mcp.Caller) bool { return c.World == world })
	g.mu.Lock()
	towns := g.towns[world]
	delete(g.towns, world)
	g.mu.Unlock()
	if towns != nil {
		towns.Close()
	}
}

// Clients returns the host of each session of a world, as world.clients shows clients.
func (g *Gate) Clients(world string) (hosts []messages.Client) {
	if g == nil {
		return nil
	}
	for _, s := range g.handler.Sessions() {
		if s.World != world {
			continue
		}
		user, role, _ := g.config.Directory.User(s.User, world)
		hosts = append(hosts, messages.Client{
			User: user, Role: string(role), Name: "mcp " + s.Host, Connections: 1,
			Since: runevents.Timestamp(s.Since), LastSeen: runevents.Timestamp(s.Used),
		})
	}
	return hosts
}

// Drain refuses requests from now on, and ends the open streams. Unanswered calls go on.
func (g *Gate) Drain() { g.handler.Drain() }

// Close ends the sessions. Unanswered calls are answered until ctx ends.
func (g *Gate) Close(ctx context.Context) error {
	err := g.handler.Close(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, towns := range g.towns {
		towns.Close()
	}
	for _, nc := range g.conns {
		nc.Close()
	}
	if err != nil {
		return fmt.Errorf("mcphttp: sessions of language models: %w", err)
	}
	return nil
}

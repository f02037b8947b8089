package embedded

import (
	"fmt"
	"strings"
	"sync/atomic"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/passwords"
)

// accounts are the NATS accounts of an embedded server with their users, as package access
// describes them. Their method Check decides who signs in. The world's account is the global
// account of NATS, so that one data directory can be served with access control, without it, or
// open. At its start the server makes an NKey for each account; its own connections use these keys.
//
// With access control only the users of the access file may connect. Without it every client
// is in the clients' account, may ask every verb, and has no way to the streams; the local
// operator's key has all rights in the world's account. An open server has only the world's account,
// with all rights.
type accounts struct {
	config         *Config
	engine, asking natsconn.Key
	operator       operatorKey // none with access control

	logins    atomic.Pointer[logins]
	passwords *passwords.Checker
	sessions  *sessions
	addresses *addressBound
}

func newAccounts(config *Config) (_ *accounts, err error) {
	a := &accounts{
		config: config, passwords: passwords.New(), sessions: newSessions(), addresses: &addressBound{config: config, ids: map[string][]uint64{}},
	}
	for _, key := range []*natsconn.Key{&a.engine, &a.asking} {
		if *key, err = natsconn.NewKey(); err != nil {
			return nil, fmt.Errorf("embedded: %w", err)
		}
	}
	if config.Access == nil && !config.Private {
		a.operator, err = readOperatorKey(config.Data)
	}
	return a, err
}

// ownClientConnections is how many of the server's own connections are in the clients' account: one
// receives requests, and one sends their answers.
const ownClientConnections = 2

// anonymous is the name of the NATS user for clients without credentials.
const anonymous = "anybody"

// configure adds the accounts, and the check of logins, to the options of a server.
func (a *accounts) configure(options *natsserver.Options) (err error) {
	options.CustomClientAuthentication, options.AlwaysEnableNonce = a, true
	options.AuthTimeout = loginTimeout.Seconds()
	if a.config.TwoAccounts() {
		if options.Accounts, err = a.natsAccounts(options.MaxConn); err != nil {
			return fmt.Errorf("embedded: accounts: %w", err)
		}
		options.MaxConn *= socketsPerClient
	}
	options.MaxConn += ownConnections
	if a.config.Access == nil {
		// With NoAuthUser, NATS announces to clients that they need no credentials. Check still
		// decides who signs in.
		options.NoAuthUser = anonymous
		options.Users = []*natsserver.User{{Username: anonymous}}
	}
	if a.config.TLS != nil {
		options.TLSConfig, options.TLS = a.config.TLS.Config(), true
		options.TLSVerify = a.config.Access.TLS.ClientCAFile != ""
		options.TLSTimeout = loginTimeout.Seconds()
	}
	return nil
}

// natsAccounts returns the world's account and the clients' account, as WriteAccounts writes them
// for an existing NATS. connections bounds the connections of clients. Without access control no
// requests of clients cross: the service receives them in the clients' account.
func (a *accounts) natsAccounts(connections int) ([]*natsserver.Account, error) {
	imports := access.AllImports()
	if a.config.Access == nil {
		imports.Shared, imports.Discovery = nil, nil
	}
	var conf strings.Builder
	err := access.WriteAccounts(&conf, imports, access.Limits{
		MaxConnections: connections + ownClientConnections, MaxPayload: MaxRequest,
	})
	if err != nil {
		return nil, err
	}
	var options natsserver.Options
	if err := options.ProcessConfigString(conf.String()); err != nil {
		return nil, err
	}
	for _, account := range options.Accounts {
		if account.Name == access.WorldAccount {
			account.Name = natsserver.DEFAULT_GLOBAL_ACCOUNT
		}
	}
	return options.Accounts, nil
}

// replaceUsers registers those who may sign in: the users of the access file, if any, with their
// permissions among the worlds that exist, and the server itself.
func (a *accounts) replaceUsers(ns *natsserver.Server, file *access.Config, worlds []string) error {
	world := ns.GlobalAccount()
	clients, err := a.clientsOf(ns)
	if err != nil {
		return err
	}
	known := &logins{byName: map[string]*natsserver.User{}, byKey: map[string]*natsserver.User{
		a.engine.Public: {Account: world}, a.asking.Public: {Account: clients},
	}}
	if a.operator.Public != "" {
		known.byKey[a.operator.Public] = &natsserver.User{Account: world}
	}
	if file == nil {
		known.anonymous = &natsserver.User{Account: clients, Permissions: a.permissionsOfAnybody()}
		file = &access.Config{}
	}
	for i := range file.Users {
		u := &file.Users[i]
		if u.OnlyTokens() {
			continue
		}
		user := &natsserver.User{
			Account: world, Permissions: natsPermissions(access.PermissionsOf(worlds, u)),
		}
		if protocol.LookupRole(u.Role).Client {
			user.Account = clients
		}
		if u.NKey != "" {
			known.byKey[u.NKey] = user
			continue
		}
		user.Username, user.Password = u.Name, string(u.PasswordHash+u.Password) // one of them is empty
		known.byName[u.Name] = user
	}
	a.logins.Store(known)
	return nil
}

// clientsOf returns the clients' account in a server: the world's account if the server is open.
func (a *accounts) clientsOf(ns *natsserver.Server) (*natsserver.Account, error) {
	if !a.config.TwoAccounts() {
		return ns.GlobalAccount(), nil
	}
	account, err := ns.LookupAccount(access.ClientsAccount)
	if err != nil {
		return nil, fmt.Errorf("embedded: accounts: %w", err)
	}
	return account, nil
}

// permissionsOfAnybody are the permissions of clients without credentials; nil, for all rights, if
// the server is open. Such clients may not publish on the engine's subjects, since readers would
// take such a message for the engine's. They may do everything else.
func (a *accounts) permissionsOfAnybody() *natsserver.Permissions {
	if !a.config.TwoAccounts() {
		return nil
	}
	// NATS diverts a message to its astray subject before NATS checks permissions.
	deny := append(access.AllImports().Heard, layout.DivertedSubject(">"))
	return &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Deny: deny}}
}

func natsPermissions(p access.Permissions) *natsserver.Permissions {
	if p.All {
		return nil
	}
	out := &natsserver.Permissions{
		Publish:   &natsserver.SubjectPermission{Allow: p.Publish},
		Subscribe: &natsserver.SubjectPermission{Allow: p.Subscribe},
	}
	if p.Respond {
		out.Response = &natsserver.ResponsePermission{
			MaxMsgs: access.MaxAnswers, Expires: access.AnswerWindow,
		}
	}
	return out
}

// socketsPerClient is how many sockets NATS accepts for each client that it may have. The spare sockets are
// for connections that have not signed in, each for loginTimeout at most.
const socketsPerClient = 4

// OwnKey lets one of the server's own connections sign in: to the clients' account, or the world's.
func (e *NATS) OwnKey(clients bool) nats.Option {
	if clients {
		return e.accounts.asking.Option()
	}
	return e.accounts.engine.Option()
}

// Passwords returns the checker of passwords, so that wrong ones count together wherever users sign in.
func (e *NATS) Passwords() *passwords.Checker { return e.accounts.passwords }

// ReplaceUsers replaces the users who may sign in by the users of an access file, with their permissions among the
// worlds that exist. Their connections stay: see EndConnections.
func (e *NATS) ReplaceUsers(file *access.Config, worlds []string) error {
	return e.accounts.replaceUsers(e.server, file, worlds)
}

// Grant gives the same users their permissions among other worlds, and ends the connections of the users who
// gain some, by their IDs: clients connect again. Sessions of the console stay.
func (e *NATS) Grant(file *access.Config, worlds []string, gained map[string]bool) error {
	before := e.accounts.logins.Load()
	if err := e.ReplaceUsers(file, worlds); err != nil {
		return err
	}
	for name, user := range e.accounts.logins.Load().byName {
		e.accounts.sessions.renew(before.byName[name], user)
	}
	e.EndConnections(gained)
	return nil
}

// EndConnections ends the connections of users, by their IDs, and returns their number.
func (e *NATS) EndConnections(users map[string]bool) (ended int) {
	if len(users) == 0 {
		return 0
	}
	open, err := e.server.Connz(&natsserver.ConnzOptions{
		Username: true, Limit: e.server.NumClients() + DefaultMaxConnections,
	})
	if err != nil {
		return 0 // only for options that are not valid
	}
	for _, c := range open.Conns {
		if users[c.AuthorizedUser] && e.server.DisconnectClientByID(c.Cid) == nil {
			ended++
		}
	}
	return ended
}

package server

import (
	"fmt"
	"strings"
	"sync/atomic"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/httpd"
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
	tls            *liveTLS // nil without TLS
	engine, asking key
	bridge         *httpd.Bridge // of browsers; nil without HTTP
	operator       operatorKey   // none with access control

	logins    atomic.Pointer[logins]
	passwords *passwords
	sessions  *sessions
	addresses *addressBound
}

func newAccounts(config *Config, tls *liveTLS, bridge *httpd.Bridge) (_ *accounts, err error) {
	a := &accounts{
		config: config, tls: tls, bridge: bridge,
		passwords: newPasswords(), sessions: newSessions(), addresses: &addressBound{config: config, ids: map[string][]uint64{}},
	}
	for _, key := range []*key{&a.engine, &a.asking} {
		if *key, err = newKey(nkeys.CreateUser()); err != nil {
			return nil, err
		}
	}
	if config.Access == nil && !config.private {
		a.operator, err = readOperatorKey(config.Data)
	}
	return a, err
}

// ownAmongClients is how many of the server's own connections are in the clients' account: one
// receives requests, and one sends their answers.
const ownAmongClients = 2

// anonymous is the name of the NATS user for clients without credentials.
const anonymous = "anybody"

// configure adds the accounts, and the check of logins, to the options of a server.
func (a *accounts) configure(options *natsserver.Options) (err error) {
	options.CustomClientAuthentication, options.AlwaysEnableNonce = a, true
	options.AuthTimeout = loginTimeout.Seconds()
	if a.config.twoAccounts() {
		if options.Accounts, err = a.natsAccounts(options.MaxConn); err != nil {
			return fmt.Errorf("server: accounts: %w", err)
		}
		options.MaxConn *= halfOpen
	}
	options.MaxConn += ownConnections
	if a.config.Access == nil {
		// With NoAuthUser, NATS announces to clients that they need no credentials. Check still
		// decides who signs in.
		options.NoAuthUser = anonymous
		options.Users = []*natsserver.User{{Username: anonymous}}
	}
	if a.tls != nil {
		options.TLSConfig, options.TLS = a.tls.config(), true
		options.TLSVerify = a.config.Access.TLS.ClientCAFile != ""
		options.TLSTimeout = loginTimeout.Seconds()
	}
	return nil
}

// natsAccounts returns the world's account and the clients' account, as WriteAccounts writes them
// for an existing NATS. connections bounds the connections of clients. Without access control no
// requests of clients cross: the service takes them in the clients' account.
func (a *accounts) natsAccounts(connections int) ([]*natsserver.Account, error) {
	crossings := access.AllCrossings()
	if a.config.Access == nil {
		crossings.Shared, crossings.Discovery = nil, nil
	}
	var conf strings.Builder
	err := access.WriteAccounts(&conf, crossings, access.Limits{
		MaxConnections: connections + ownAmongClients, MaxPayload: maxRequest,
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

// admit registers those who may sign in: the users of the access file, if any, with their
// permissions among the worlds that exist, and the server itself.
func (a *accounts) admit(ns *natsserver.Server, file *access.Config, worlds []string) error {
	world := ns.GlobalAccount()
	clients, err := a.clientsOf(ns)
	if err != nil {
		return err
	}
	known := &logins{byName: map[string]*natsserver.User{}, byKey: map[string]*natsserver.User{
		a.engine.public: {Account: world}, a.asking.public: {Account: clients},
	}}
	if a.operator.public != "" {
		known.byKey[a.operator.public] = &natsserver.User{Account: world}
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
	if !a.config.twoAccounts() {
		return ns.GlobalAccount(), nil
	}
	account, err := ns.LookupAccount(access.ClientsAccount)
	if err != nil {
		return nil, fmt.Errorf("server: accounts: %w", err)
	}
	return account, nil
}

// permissionsOfAnybody are the permissions of clients without credentials; nil, for all rights, if
// the server is open. Such clients may not publish on the engine's subjects, since readers would
// take such a message for the engine's. They may do everything else.
func (a *accounts) permissionsOfAnybody() *natsserver.Permissions {
	if !a.config.twoAccounts() {
		return nil
	}
	// NATS diverts a message to its astray subject before NATS checks permissions.
	deny := append(access.AllCrossings().Heard, layout.AstraySubject(">"))
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
			MaxMsgs: access.MaxAnswers, Expires: access.AnswersExpire,
		}
	}
	return out
}

// halfOpen is how many sockets NATS accepts for each client that it may have. The spare sockets are
// for connections that have not signed in, each for loginTimeout at most.
const halfOpen = 4

// key is the NKey of a user of the server itself.
type key struct {
	nkeys.KeyPair
	public string
}

// newKey returns a key from the results of nkeys.
func newKey(pair nkeys.KeyPair, err error) (key, error) {
	if err != nil {
		return key{}, fmt.Errorf("server: key of a user: %w", err)
	}
	public, err := pair.PublicKey()
	return key{pair, public}, err
}

// option lets a connection in with the key.
func (k key) option() nats.Option { return nats.Nkey(k.public, k.Sign) }

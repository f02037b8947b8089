package server

import (
	"fmt"
	"net"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"worldengine/worldengine/access"
	"worldengine/worldengine/httpd"
	"worldengine/worldengine/wire"
)

// ErrOpenListen says that a server without access control was to listen where others than this
// machine can reach it.
var ErrOpenListen = fmt.Errorf("server: without --access every client that reaches the server " +
	"may do everything, so it listens on loopback only: give an access file, or --insecure-listen")

// ErrPlainListen says that a server whose clients sign in was to listen without TLS where others
// than this machine can reach it.
var ErrPlainListen = fmt.Errorf("server: without TLS every machine on the way to the server can " +
	"read the passwords of its users, so it listens on loopback only: give tls in the access " +
	"file, or --insecure-listen")

// ErrPlainHTTP says that the console was to listen without TLS where others than this machine can
// reach it.
var ErrPlainHTTP = fmt.Errorf("server: without TLS every machine on the way to the console " +
	"can read the passwords of its users, so it listens on loopback only: give tls in the access " +
	"file, or --insecure-listen")

// CheckListen returns ErrOpenListen, ErrPlainListen or ErrPlainHTTP, or nil if the configuration may
// be listened with.
func CheckListen(config *Config) error {
	beyond := config.HTTP != "" && !loopback(config.HTTP)
	switch {
	case config.InsecureListen:
		return nil
	case config.Access == nil && config.NATS == "" && !loopback(config.Listen):
		return fmt.Errorf("%w (--listen %s)", ErrOpenListen, config.Listen)
	case config.Access == nil && beyond:
		return fmt.Errorf("%w (--http %s)", ErrOpenListen, config.HTTP)
	case config.Access != nil && config.NATS == "" && !loopback(config.Listen) &&
		config.Access.TLS == (access.TLS{}):
		return fmt.Errorf("%w (--listen %s)", ErrPlainListen, config.Listen)
	case beyond && config.Access.TLS == (access.TLS{}):
		return fmt.Errorf("%w (--http %s)", ErrPlainHTTP, config.HTTP)
	}
	return nil
}

// loopback reports whether only this machine reaches an address. What is no address is said by who
// listens.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// accounts are the NATS accounts of an embedded server and who is in them, as package access
// describes them. The world's account is the server's global one, so that a data directory serves
// with access control, without, and open. The server's own connections use an NKey for each
// account, made at the start.
//
// With access control only the users of the access file may connect. Without it every client
// is in the clients' account, may ask every verb, and has no way to the streams; the local
// operator's key has all rights in the world's account. Where the server is open, there is only the
// world's account, with all rights.
type accounts struct {
	config         *access.Config // nil without access control
	tls            *liveTLS       // nil without TLS
	world          string
	clients        *natsserver.Account // nil where the server is open
	engine, asking nkeys.KeyPair
	login          *authenticator
	addresses      *perAddress
	bridge         *httpd.Bridge // nil without HTTP
	operatorFile   string        // with the local operator's seed; empty with access control
	operator       string        // the public key
}

func accountsOf(config *Config) (_ *accounts, err error) {
	a := &accounts{
		config: config.Access, tls: config.tls, world: config.Engine.World,
		addresses: newPerAddress(config), bridge: config.bridge,
	}
	if config.twoAccounts() {
		if a.clients, err = clientsAccount(config.MaxConnections); err != nil {
			return nil, err
		}
	}
	if a.engine, err = nkeys.CreateUser(); err != nil {
		return nil, fmt.Errorf("server: key of the engine: %w", err)
	}
	if a.asking, err = nkeys.CreateUser(); err != nil {
		return nil, fmt.Errorf("server: key of the engine: %w", err)
	}
	return a, nil
}

// ownAmongClients is how many of the server's own connections are in the clients' account: one that
// tries what crosses to the world's account, or one for requests there and one for their answers.
const ownAmongClients = 2

// clientsAccount returns the clients' account with its bounds: so many connections beside the
// server's own there, and maxRequest. NATS takes these from a configuration only.
func clientsAccount(connections int) (*natsserver.Account, error) {
	var options natsserver.Options
	err := options.ProcessConfigString(fmt.Sprintf("accounts { %s { limits { max_connections: %d, "+
		"max_payload: %d } } }",
		access.ClientsAccount, connections+ownAmongClients, maxRequest))
	if err != nil {
		return nil, fmt.Errorf("server: accounts: %w", err)
	}
	return options.Accounts[0], nil
}

// openOperatorKey reads the local operator's key, or makes it.
func (a *accounts) openOperatorKey(config *Config) (err error) {
	if config.Access == nil && !config.private {
		a.operatorFile, a.operator, err = operatorKey(config.Data)
	}
	return err
}

// anonymous is the name of the NATS user for clients without credentials.
const anonymous = "anybody"

// configure adds the accounts and who decides about logins to the options of a server.
func (a *accounts) configure(options *natsserver.Options) {
	a.login = newAuthenticator(a.addresses, a.bridge)
	options.CustomClientAuthentication, options.AlwaysEnableNonce = a.login, true
	options.AuthTimeout = loginTimeout.Seconds()
	options.MaxConn = a.sockets(options.MaxConn)
	if a.clients != nil {
		options.Accounts = []*natsserver.Account{a.clients}
	}
	if a.config == nil {
		// Only that NATS tells clients that they need no credentials: the authenticator decides.
		options.NoAuthUser = anonymous
		options.Users = []*natsserver.User{{Username: anonymous}}
		return
	}
	if a.tls != nil {
		options.TLSConfig, options.TLS, a.login.tls = a.tls.config(), true, true
		options.TLSVerify = a.config.TLS.ClientCAFile != ""
		options.TLSTimeout = loginTimeout.Seconds()
	}
}

// admit lets the users into the accounts of a server that is not started yet.
func (a *accounts) admit(ns *natsserver.Server) error {
	a.addresses.alive = func(id uint64) bool { return ns.GetClient(id) != nil }
	known, err := a.loginsOf(ns)
	if err == nil {
		a.login.logins.Store(known)
	}
	return err
}

// loginsOf returns those who may sign in, the server itself among them.
func (a *accounts) loginsOf(ns *natsserver.Server) (*logins, error) {
	world, clients := ns.GlobalAccount(), ns.GlobalAccount()
	if a.clients != nil {
		found, err := ns.LookupAccount(access.ClientsAccount)
		if err != nil {
			return nil, fmt.Errorf("server: accounts: %w", err)
		}
		clients = found
	}
	known := &logins{byName: map[string]*natsserver.User{}, byKey: map[string]*natsserver.User{
		publicKey(a.engine): {Account: world}, publicKey(a.asking): {Account: clients},
	}}
	if a.config == nil {
		if a.operator != "" {
			known.byKey[a.operator] = &natsserver.User{Account: world}
		}
		known.anonymous = &natsserver.User{Account: clients, Permissions: a.ofAnybody()}
		return known, nil
	}
	for i := range a.config.Users {
		a.addUser(known, &a.config.Users[i], world, clients)
	}
	return known, nil
}

// ofAnybody are the permissions of who need not say who he is: all but to publish what only the
// engine publishes, which others in the account would take for the engine's.
func (a *accounts) ofAnybody() *natsserver.Permissions {
	if a.clients == nil {
		return nil
	}
	// NATS diverts a subject before it looks at permissions.
	deny := append(access.CrossingsOf(a.world).Heard, wire.AstraySubject(">"))
	return &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Deny: deny}}
}

func (a *accounts) addUser(known *logins, u *access.User, world, clients *natsserver.Account) {
	user := &natsserver.User{
		Account: world, Permissions: natsPermissions(access.PermissionsOf(a.world, u)),
	}
	if u.Role.Spec().Client {
		user.Account = clients
	}
	if u.NKey != "" {
		known.byKey[u.NKey] = user
		return
	}
	// one of the two is empty
	user.Username, user.Password = u.Name, string(u.PasswordHash+u.Password)
	known.byName[u.Name] = user
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

// connect lets JetStream, and what crosses the accounts, into a server that was started.
func (a *accounts) connect(ns *natsserver.Server) error {
	if a.clients == nil {
		return nil
	}
	world := ns.GlobalAccount()
	clients, err := ns.LookupAccount(access.ClientsAccount)
	if err != nil {
		return fmt.Errorf("server: accounts: %w", err)
	}
	if err := world.EnableJetStream(nil, nil); err != nil {
		return fmt.Errorf("server: JetStream: %w", err)
	}
	if err := cross(world, clients, a.crossings()); err != nil {
		return fmt.Errorf("server: accounts: %w", err)
	}
	return nil
}

// crossings are what crosses the accounts. Without access control it is no request of clients: the
// service takes these in their account.
func (a *accounts) crossings() access.Crossings {
	c := access.CrossingsOf(a.world)
	if a.config == nil {
		c.Shared, c.Services = nil, []string{access.AskingInbox + ".>"}
	}
	return c
}

func cross(world, clients *natsserver.Account, c access.Crossings) error {
	for _, subject := range c.Shared {
		crossed := wire.CrossedSubject(subject)
		if err := serve(world, clients, subject, crossed, natsserver.Singleton); err != nil {
			return err
		}
		if err := clients.SetServiceImportSharing(world, crossed, true); err != nil {
			return err
		}
	}
	for _, subject := range c.Services {
		if err := serve(world, clients, subject, subject, natsserver.Streamed); err != nil {
			return err
		}
	}
	for _, subject := range c.Heard {
		if err := world.AddStreamExport(subject, []*natsserver.Account{clients}); err != nil {
			return err
		}
		if err := clients.AddStreamImport(world, subject, ""); err != nil {
			return err
		}
	}
	for _, subject := range c.Diverted {
		if err := clients.AddMapping(subject, wire.AstraySubject(subject)); err != nil {
			return err
		}
	}
	return nil
}

// serve lets the clients' requests on a subject through, which arrive on another, and their answers
// back.
func serve(
	world, clients *natsserver.Account, from, to string, kind natsserver.ServiceRespType,
) error {
	if err := world.AddServiceExportWithResponse(to, kind,
		[]*natsserver.Account{clients}); err != nil {
		return err
	}
	if kind == natsserver.Singleton {
		if err := world.SetServiceExportResponseThreshold(to,
			access.AnswerWithin(from)); err != nil {
			return err
		}
	}
	return clients.AddServiceImport(world, from, to)
}

// halfOpen is how many times as many sockets as clients NATS takes: those that have not signed in
// yet, each for loginTimeout at most, have room beside the clients, whose account has a bound of
// its own.
const halfOpen = 4

// sockets returns how many connections NATS takes, of clients, of the server itself, and half-open
// ones.
func (a *accounts) sockets(clients int) int {
	if a.clients == nil {
		return clients + ownConnections
	}
	return halfOpen*clients + ownConnections
}

// option lets a connection of the server's own in: to the world's account, or to that of the
// clients.
func (a *accounts) option(toClients bool) nats.Option {
	pair := a.engine
	if toClients {
		pair = a.asking
	}
	return nats.Nkey(publicKey(pair), pair.Sign)
}

// publicKey returns the public key of a pair that was made by this process, which always has one.
func publicKey(pair nkeys.KeyPair) string {
	key, _ := pair.PublicKey()
	return key
}

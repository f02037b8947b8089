package server

import (
	"fmt"
	"net"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"worldengine/worldengine/access"
)

// ErrOpenListen says that a server without access control was to listen where others than this machine
// can reach it.
var ErrOpenListen = fmt.Errorf("server: without --access everybody who reaches the server may do everything, " +
	"so it listens on loopback only: give an access file, or --insecure-listen")

// CheckListen returns ErrOpenListen, or nil where the configuration may be listened with.
func CheckListen(config *Config) error {
	if config.NATS != "" || config.Access != nil || config.InsecureListen {
		return nil
	}
	host, _, err := net.SplitHostPort(config.Listen)
	if err != nil || host == "localhost" {
		return nil // what is no address is said by who listens
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%w (--listen %s)", ErrOpenListen, config.Listen)
	}
	return nil
}

// accounts are the NATS accounts of an embedded server with access control, as package access describes
// them. The world's account is the server's global one, so that a data directory serves with access
// control and without. The server's own connections use an NKey for each account, made at the start.
// A nil one is of a server without access control.
type accounts struct {
	config         *access.Config
	world          string
	clients        *natsserver.Account
	engine, asking nkeys.KeyPair
}

func accountsOf(config *Config) (_ *accounts, err error) {
	if config.Access == nil {
		return nil, nil
	}
	a := &accounts{config: config.Access, world: config.Engine.World, clients: natsserver.NewAccount(access.ClientsAccount)}
	if a.engine, err = nkeys.CreateUser(); err != nil {
		return nil, fmt.Errorf("server: key of the engine: %w", err)
	}
	if a.asking, err = nkeys.CreateUser(); err != nil {
		return nil, fmt.Errorf("server: key of the engine: %w", err)
	}
	if _, err := a.config.TLS.Config(); err != nil {
		return nil, fmt.Errorf("server: TLS: %w", err)
	}
	return a, nil
}

// configure adds the accounts and users to the options of a server.
func (a *accounts) configure(options *natsserver.Options) {
	if a == nil {
		return
	}
	options.Accounts = []*natsserver.Account{a.clients}
	options.Nkeys = []*natsserver.NkeyUser{
		{Nkey: publicKey(a.engine)}, {Nkey: publicKey(a.asking), Account: a.clients},
	}
	for i := range a.config.Users {
		a.addUser(options, &a.config.Users[i])
	}
	if config, _ := a.config.TLS.Config(); config != nil { // accountsOf has read it before
		options.TLSConfig, options.TLS = config, true
		options.TLSVerify = config.ClientCAs != nil
		options.TLSTimeout = 5
	}
}

func (a *accounts) addUser(options *natsserver.Options, u *access.User) {
	permissions := natsPermissions(access.PermissionsOf(a.world, u))
	var account *natsserver.Account
	if u.Role.IsClient() {
		account = a.clients
	}
	if u.NKey != "" {
		options.Nkeys = append(options.Nkeys,
			&natsserver.NkeyUser{Nkey: u.NKey, Permissions: permissions, Account: account})
		return
	}
	password := string(u.PasswordHash + u.Password) // one of the two is empty
	options.Users = append(options.Users, &natsserver.User{
		Username: u.Name, Password: password, Permissions: permissions, Account: account,
	})
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
		out.Response = &natsserver.ResponsePermission{MaxMsgs: access.MaxAnswers, Expires: access.AnswersExpire}
	}
	return out
}

// connect lets JetStream, and what crosses the accounts, into a server that was started.
func (a *accounts) connect(ns *natsserver.Server) error {
	if a == nil {
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
	if err := cross(world, clients, access.CrossingsOf(a.world)); err != nil {
		return fmt.Errorf("server: accounts: %w", err)
	}
	return nil
}

func cross(world, clients *natsserver.Account, c access.Crossings) error {
	for _, subject := range c.Shared {
		if err := serve(world, clients, subject, natsserver.Singleton); err != nil {
			return err
		}
		if err := clients.SetServiceImportSharing(world, subject, true); err != nil {
			return err
		}
	}
	for _, subject := range c.Services {
		if err := serve(world, clients, subject, natsserver.Streamed); err != nil {
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
	return nil
}

// serve lets requests on a subject through, and their answers back.
func serve(world, clients *natsserver.Account, subject string, kind natsserver.ServiceRespType) error {
	if err := world.AddServiceExportWithResponse(subject, kind, []*natsserver.Account{clients}); err != nil {
		return err
	}
	if kind == natsserver.Singleton {
		if err := world.SetServiceExportResponseThreshold(subject, access.AnswersExpire); err != nil {
			return err
		}
	}
	return clients.AddServiceImport(world, subject, subject)
}

// option lets a connection of the server's own in: to the world's account, or to that of the clients.
func (a *accounts) option(toClients bool) nats.Option {
	if a == nil {
		return func(*nats.Options) error { return nil }
	}
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

package embedded

import (
	"encoding/base64"
	"net"
	"reflect"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/serve/passwords"
)

// logins are the users who may sign in. They do not change: a reload replaces them.
type logins struct {
	byKey     map[string]*natsserver.User // by public NKey
	byName    map[string]*natsserver.User
	anonymous *natsserver.User // nil if every client needs credentials
}

// Check implements natsserver.Authentication. NATS calls it once for each CONNECT, on the goroutine
// that reads the connection, so a slow login delays no other client.
func (a *accounts) Check(c natsserver.ClientAuthentication) bool {
	if c.Kind() != natsserver.CLIENT {
		return false
	}
	remote, ok := a.remoteOf(c)
	if !ok || a.addresses.full(remote) {
		return false
	}
	known := a.logins.Load()
	user := a.userOf(c, remote, known)
	if user == nil {
		return false
	}
	a.addresses.add(remote, c.GetID())
	c.RegisterUser(user)
	// A reload ends the connections of changed users, but may have missed this one, which was still
	// signing in.
	return a.logins.Load().has(user, c.GetOpts().Nkey)
}

// has reports whether a user who signed in before a reload is unchanged.
func (l *logins) has(user *natsserver.User, key string) bool {
	if user == l.anonymous {
		return true
	}
	now := l.byName[user.Username]
	if key != "" {
		now = l.byKey[key]
	}
	return now != nil && reflect.DeepEqual(now, user)
}

// remoteOf returns the address of a connection's client; behind the bridge, that is the browser. ok
// is false if the client needs TLS and has none: on the WebSocket listener, NATS does not require
// TLS.
func (a *accounts) remoteOf(c natsserver.ClientAuthentication) (remote net.Addr, ok bool) {
	if client, forwarded := a.config.Bridge.Client(c.RemoteAddress()); forwarded {
		return client, true
	}
	remote = c.RemoteAddress()
	return remote, a.config.TLS == nil || !hasIP(remote) || c.GetTLSConnectionState() != nil
}

// userOf returns the user of a connection, or nil. A connection with an NKey is accepted as that
// key's user alone, since NATS uses the key as the user's name.
func (a *accounts) userOf(
	c natsserver.ClientAuthentication, remote net.Addr, known *logins,
) *natsserver.User {
	options := c.GetOpts()
	if options.Nkey != "" {
		user := known.byKey[options.Nkey]
		if user == nil || !signed(options.Nkey, options.Sig, c.GetNonce()) {
			return nil
		}
		return user
	}
	if known.anonymous != nil {
		return known.anonymous
	}
	user := known.byName[options.Username]
	if user == nil {
		return nil
	}
	right := false
	if isSessionToken(options.Password) { // of the console alone
		_, browser := a.config.Bridge.Client(c.RemoteAddress())
		right = browser && a.sessions.has(user, options.Password)
	} else {
		right = a.passwords.Right(httpd.AddressOf(remote), storedOf(user), options.Password)
	}
	if !right {
		return nil
	}
	return user
}

// storedOf returns a user as package passwords knows it.
func storedOf(user *natsserver.User) passwords.User {
	return passwords.User{Name: user.Username, Stored: user.Password}
}

// signed reports whether the owner of a public key has signed a nonce.
func signed(key, signature string, nonce []byte) bool {
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil { // some clients use the standard alphabet
		raw, err = base64.StdEncoding.DecodeString(signature)
	}
	public, keyErr := nkeys.FromPublicKey(key)
	return err == nil && keyErr == nil && public.Verify(nonce, raw) == nil
}

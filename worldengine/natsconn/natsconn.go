// Package natsconn holds the flags with which a program connects to NATS, named as the NATS
// command line names them, and makes connections of them.
package natsconn

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Options say how to connect. They are the NATS command line's, with its environment variables;
// the struct tags are those of a kong command line. Nothing of them is ever logged.
type Options struct {
	User     string `help:"User name, or a token where no password is given." env:"NATS_USER" group:"connection"`
	Password string `help:"Password." env:"NATS_PASSWORD" group:"connection"`
	Token    string `help:"Token." env:"NATS_TOKEN" group:"connection"`
	Creds    string `help:"File with user credentials (JWT and seed)." env:"NATS_CREDS" type:"existingfile" group:"connection"`
	NKey     string `name:"nkey" help:"File with an NKey seed." env:"NATS_NKEY" type:"existingfile" group:"connection"`
	TLSCert  string `name:"tlscert" help:"File with a TLS client certificate." env:"NATS_CERT" type:"existingfile" group:"connection"`
	TLSKey   string `name:"tlskey" help:"File with the key of the TLS client certificate." env:"NATS_KEY" type:"existingfile" group:"connection"`
	TLSCA    string `name:"tlsca" help:"File with the TLS authorities to trust." env:"NATS_CA" type:"existingfile" group:"connection"`
	TLSFirst bool   `name:"tlsfirst" help:"Perform the TLS handshake before the NATS protocol." group:"connection"`
	Inbox    string `name:"inbox-prefix" help:"Prefix of the inboxes to use." env:"NATS_INBOX_PREFIX" group:"connection"`
}

// Connect connects to the servers of url (comma-separated), under a name that the server's
// operator sees. more options come last and win.
func (o Options) Connect(url, name string, more ...nats.Option) (*nats.Conn, error) {
	options, err := o.natsOptions()
	if err != nil {
		return nil, err
	}
	options = append(options, nats.Name(name))
	nc, err := nats.Connect(url, append(options, more...)...)
	if err != nil {
		return nil, fmt.Errorf("natsconn: cannot connect to %s: %w", WithoutSecrets(url), err)
	}
	return nc, nil
}

func (o Options) natsOptions() ([]nats.Option, error) {
	options := []nats.Option{nats.Timeout(5 * time.Second)}
	switch {
	case o.Token != "":
		options = append(options, nats.Token(o.Token))
	case o.User != "" && o.Password != "":
		options = append(options, nats.UserInfo(o.User, o.Password))
	case o.User != "":
		options = append(options, nats.Token(o.User))
	}
	if o.Creds != "" {
		options = append(options, nats.UserCredentials(o.Creds))
	}
	if o.NKey != "" {
		option, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("natsconn: --nkey: %w", err)
		}
		options = append(options, option)
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return nil, fmt.Errorf("natsconn: --tlscert and --tlskey are given together or not at all")
	}
	if o.TLSCert != "" {
		options = append(options, nats.ClientCert(o.TLSCert, o.TLSKey))
	}
	if o.TLSCA != "" {
		options = append(options, nats.RootCAs(o.TLSCA))
	}
	if o.TLSFirst {
		options = append(options, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}),
			nats.TLSHandshakeFirst())
	}
	if o.Inbox != "" {
		options = append(options, nats.CustomInboxPrefix(o.Inbox))
	}
	return options, nil
}

// WithoutSecrets cuts user names, passwords and tokens out of URLs.
func WithoutSecrets(urls string) string {
	var safe []string
	for _, url := range strings.Split(urls, ",") {
		scheme, rest, found := strings.Cut(url, "://")
		if !found {
			scheme, rest = "nats", url
		}
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = rest[at+1:]
		}
		safe = append(safe, strings.TrimSpace(scheme)+"://"+rest)
	}
	return strings.Join(safe, ",")
}

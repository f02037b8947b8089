// Package natsconn has the flags with which a program connects to NATS, named as on the NATS
// command line, and connects.
package natsconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"worldengine/worldengine/internal/kit/layout"
)

// Options are the NATS command line's flags and environment variables, with tags for a kong command
// line. None of them is ever logged.
type Options struct {
	User     string `help:"User name, or a token if no password is given." env:"NATS_USER" group:"connection"`
	Password string `help:"Password." env:"NATS_PASSWORD" group:"connection"`
	Token    string `help:"Token." env:"NATS_TOKEN" group:"connection"`
	Creds    string `help:"File with user credentials (JWT and seed)." env:"NATS_CREDS" type:"existingfile" group:"connection"`
	NKey     string `name:"nkey" help:"File with an NKey seed." env:"NATS_NKEY" type:"existingfile" group:"connection"`
	TLSCert  string `name:"tlscert" help:"File with a TLS client certificate." env:"NATS_CERT" type:"existingfile" group:"connection"`
	TLSKey   string `name:"tlskey" help:"File with the key of the TLS client certificate." env:"NATS_KEY" type:"existingfile" group:"connection"`
	TLSCA    string `name:"tlsca" help:"File with the TLS authorities to trust." env:"NATS_CA" type:"existingfile" group:"connection"`
	TLSFirst bool   `name:"tlsfirst" help:"Perform the TLS handshake before the NATS protocol." group:"connection"`
	Inbox    string `name:"inbox-prefix" help:"Prefix of the inboxes to use. handoffctl derives it from the user name: _INBOX_<user>." env:"NATS_INBOX_PREFIX" group:"connection"`
}

// LoadEnvironment returns the servers' URL ("" if there is none) and the options from the
// environment variables of the NATS command line; lookup is os.LookupEnv.
func LoadEnvironment(lookup func(string) (string, bool)) (urls string, o Options) {
	fields := reflect.ValueOf(&o).Elem()
	for i := range fields.NumField() {
		if name := fields.Type().Field(i).Tag.Get("env"); name != "" {
			value, _ := lookup(name)
			fields.Field(i).SetString(value)
		}
	}
	urls, _ = lookup("NATS_URL")
	return urls, o
}

// Check returns an error that names the first file of the options that is missing or invalid.
func (o Options) Check() error {
	if o.Creds != "" {
		text, err := os.ReadFile(o.Creds)
		if err == nil {
			_, err = nkeys.ParseDecoratedNKey(text)
		}
		if err != nil {
			return fmt.Errorf("natsconn: --creds: %s has no credentials: %w", o.Creds, err)
		}
	}
	if _, err := o.natsOptions(); err != nil {
		return err
	}
	if o.TLSCert != "" {
		if _, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey); err != nil {
			return fmt.Errorf("natsconn: --tlscert and --tlskey: %w", err)
		}
	}
	_, err := o.Trust()
	return err
}

// WithUserInbox returns the options with a user's inbox prefix in a world with access control,
// _INBOX_<user>, if the options or urls name the user and no prefix is set. The client does not
// know the name of an NKey, a credentials file or a certificate: NATS answers that only to a request,
// whose reply needs the inbox.
func (o Options) WithUserInbox(urls string) Options {
	if user := o.UserOf(urls); user != "" && o.Inbox == "" {
		o.Inbox = layout.InboxPrefix(user)
	}
	return o
}

// UserOf returns the name that a connection signs in with, or "" if it is not known.
func (o Options) UserOf(urls string) string {
	if o.Creds != "" || o.NKey != "" {
		return ""
	}
	first, _, _ := strings.Cut(urls, ",")
	if !strings.Contains(first, "://") {
		first = "nats://" + first
	}
	// Wins over the options.
	if u, err := url.Parse(strings.TrimSpace(first)); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return subjectToken(u.User.Username())
		}
		return "" // a token
	}
	if o.Token == "" && o.Password != "" {
		return subjectToken(o.User)
	}
	return ""
}

// subjectToken returns a name if it can be in an inbox prefix, else "".
func subjectToken(name string) string {
	if strings.ContainsAny(name, ".*> \t\r\n") {
		return ""
	}
	return name
}

// Connect connects to the comma-separated servers of urls, under a name that the server's operator
// sees, and again if that took too long to sign in. more options come last and win.
func (o Options) Connect(urls, name string, more ...nats.Option) (*nats.Conn, error) {
	options, err := o.natsOptions()
	if err != nil {
		return nil, err
	}
	options = append(options, nats.Name(name))
	options = append(options, more...)
	nc, err := nats.Connect(urls, options...)
	for tries := 1; isLate(err) && tries < signInTries; tries++ {
		nc, err = nats.Connect(urls, options...)
	}
	var unreadable *url.Error
	if errors.As(err, &unreadable) {
		err = unreadable.Err // without the URL, which may have a password
	}
	if err != nil {
		return nil, fmt.Errorf("natsconn: cannot connect to %s: %w", RedactURLs(urls), err)
	}
	return nc, nil
}

// signInTries is how often a connection that is late is tried.
const signInTries = 4

// isLate reports whether an error of connecting means that the machine is too busy: NATS gives a connection a few
// seconds to sign in, and after two it asks whether the connection is there, which the client takes for an error.
func isLate(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "Authentication Timeout") ||
		strings.Contains(err.Error(), "expected 'PONG', got 'PING'"))
}

// Flush waits until NATS has the bytes that a connection has sent, and again if the connection was lost meanwhile.
// ctx must have a deadline.
func Flush(ctx context.Context, nc *nats.Conn) error {
	for {
		err := nc.FlushWithContext(ctx)
		if !errors.Is(err, nats.ErrConnectionClosed) || nc.IsClosed() {
			return err
		}
	}
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
			return nil, fmt.Errorf("natsconn: --nkey: %s has no seed: %w", o.NKey, err)
		}
		options = append(options, option)
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return nil, errors.New("natsconn: --tlscert and --tlskey are given together or not at all")
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

// Trust returns the TLS authorities that the options trust, nil for the machine's.
func (o Options) Trust() (*tls.Config, error) {
	if o.TLSCA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(o.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("natsconn: --tlsca: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("natsconn: --tlsca: %s has no certificate", o.TLSCA)
	}
	return config, nil
}

// RedactURLs removes user names, passwords and tokens from URLs.
func RedactURLs(urls string) string {
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

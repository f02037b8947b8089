package natsconn

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"worldengine/worldengine/platform"
	"worldengine/worldengine/wire"
)

// ErrOperatorKey says that the key of a server's local operator cannot be used from here.
var ErrOperatorKey = errors.New("natsconn: the streams of this server need its operator's key, " +
	"which cannot be used from here")

// remedy says what to do where the key is not found.
const remedy = "give --nkey FILE with DATA/operator.nk of the server's data directory, " +
	"or start the server with --open, which gives every client all rights"

// ConnectOperator connects as Connect does to a server whose streams are to be read or written.
// Without credentials it connects with the key of the server's local operator, where the server
// names one: on this machine, in a file that only this user can read.
func (o Options) ConnectOperator(url, name string, more ...nats.Option) (*nats.Conn, error) {
	if !o.hasCredentials() {
		file, err := o.findOperatorKey(url, name)
		if err != nil {
			return nil, err
		}
		o.NKey = file
	}
	return o.Connect(url, name, more...)
}

func (o Options) hasCredentials() bool {
	return o.User != "" || o.Token != "" || o.Creds != "" || o.NKey != "" || o.TLSCert != ""
}

func (o Options) findOperatorKey(url, name string) (string, error) {
	nc, err := o.Connect(url, name)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	return operatorKeyOf(nc)
}

// operatorKeyOf returns the file of the local operator's key of the server that nc is connected to,
// or nothing where that has none, as an external NATS server.
func operatorKeyOf(nc *nats.Conn) (string, error) {
	reply, err := nc.Request("$SRV.INFO."+wire.ServiceName, nil, 2*time.Second)
	if errors.Is(err, nats.ErrNoResponders) {
		return "", nil // no engine is here that has a key
	}
	if err != nil {
		return "", fmt.Errorf("%w: the server does not say where it is (%w); %s",
			ErrOperatorKey, err, remedy)
	}
	var info struct {
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(reply.Data, &info) != nil {
		return "", nil
	}
	file := info.Metadata[wire.OperatorKeyMetadata]
	if file == "" {
		return "", nil
	}
	if !isLoopback(nc.ConnectedUrl()) {
		return "", fmt.Errorf("%w: the server is on another machine; %s", ErrOperatorKey, remedy)
	}
	if err := believable(file, nc.ConnectedAddr()); err != nil {
		return "", fmt.Errorf("%w: %w; %s", ErrOperatorKey, err, remedy)
	}
	return file, nil
}

// isLoopback reports whether a server is reached by an address of this machine alone.
func isLoopback(at string) bool {
	u, err := url.Parse(at)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// OperatorKeyAddress begins the line of the file with the operator's key that names where the
// server of that key listens, as HOST:PORT.
const OperatorKeyAddress = "# of the server at "

// isOf reports whether the file of an operator's key names the server at an address. A host that is
// not an address of its own, as 0.0.0.0, is every one.
func isOf(content []byte, address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(content)) {
		named, ok := strings.CutPrefix(strings.TrimSpace(line), OperatorKeyAddress)
		if !ok {
			continue
		}
		host, namedPort, err := net.SplitHostPort(named)
		ip := net.ParseIP(host)
		return err == nil && namedPort == port &&
			(named == address || ip != nil && ip.IsUnspecified())
	}
	return false
}

// believable returns nil where a file that a server at an address names is an NKey seed of this
// user's own, which a server at that address has written. So no program that only passes on what
// another server says gets anything signed.
func believable(file, address string) error {
	if !filepath.IsAbs(file) {
		return fmt.Errorf("the server names %q, which is no absolute path", file)
	}
	info, err := os.Lstat(file)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || !platform.IsPrivate(file, info) {
		return fmt.Errorf("%s is not a file of this user with mode 0600", file)
	}
	seed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !isOf(seed, address) {
		return fmt.Errorf("%s is the key of a server at another address than %s", file, address)
	}
	pair, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return fmt.Errorf("%s holds no NKey seed: %w", file, err)
	}
	defer pair.Wipe()
	public, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return fmt.Errorf("%s holds no NKey seed of a user", file)
	}
	return nil
}

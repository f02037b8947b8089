package natsconn

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/kit/protocol"
)

// ErrOperatorKey says that the key of a server's local operator cannot be used from here.
var ErrOperatorKey = errors.New("natsconn: the streams of this server need its operator's key, " +
	"which cannot be used from here")

// remedy is the cure if the key is not found.
const remedy = "give --nkey FILE with DATA/operator.nk of the server's data directory, " +
	"or start the server with --open, which gives every client all rights"

// ConnectOperator connects, like Connect, to a server whose streams are to be read or written.
// Without credentials it uses the key of the server's local operator, if the server names one in a
// file of this machine that only this user can read.
func (o Options) ConnectOperator(url, name string, more ...nats.Option) (*nats.Conn, error) {
	if cmp.Or(o.User, o.Token, o.Creds, o.NKey, o.TLSCert) == "" {
		nc, err := o.Connect(url, name)
		if err != nil {
			return nil, err
		}
		o.NKey, err = operatorKeyOf(nc)
		nc.Close()
		if err == nil {
			err = o.Check()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w; %s", ErrOperatorKey, err, remedy)
		}
	}
	return o.Connect(url, name, more...)
}

// infoTimeout bounds the wait for a server's information: a busy server answers late.
const infoTimeout = 10 * time.Second

// operatorKeyOf returns the key file of the local operator of nc's server, or "" if it has none,
// like an external NATS server.
func operatorKeyOf(nc *nats.Conn) (string, error) {
	reply, err := nc.Request("$SRV.INFO."+protocol.ServiceName, nil, infoTimeout)
	if errors.Is(err, nats.ErrNoResponders) {
		return "", nil // no engine is here that has a key
	}
	if err != nil {
		return "", fmt.Errorf("the server does not name its key file (%w)", err)
	}
	var info struct {
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(reply.Data, &info) != nil {
		return "", nil
	}
	file := info.Metadata[protocol.OperatorKeyMetadata]
	if file == "" {
		return "", nil
	}
	if !isLoopback(nc.ConnectedAddr()) {
		return "", errors.New("the server is on another machine")
	}
	return file, checkKey(file, nc.ConnectedAddr())
}

// isLoopback reports whether an address, IP:PORT, is one of this machine alone.
func isLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// OperatorKeyAddress is the prefix of the line of a key file with the address, IP:PORT, at which the key's
// server listens.
const OperatorKeyAddress = "# of the server at "

// names reports whether an operator's key file names the server at an address, IP:PORT. An IP such
// as 0.0.0.0 matches every address.
func names(content []byte, address string) bool {
	_, named, _ := strings.Cut(string(content), OperatorKeyAddress)
	named, _, _ = strings.Cut(named, "\n")
	at, err := netip.ParseAddrPort(strings.TrimSpace(named))
	to, addressErr := netip.ParseAddrPort(address)
	return err == nil && addressErr == nil && at.Port() == to.Port() &&
		(at.Addr() == to.Addr() || at.Addr().IsUnspecified())
}

// checkKey returns an error unless the file that a server names is this user's, and written by the
// server at that address. So a program that forwards another server's answer gets nothing signed.
func checkKey(file, address string) error {
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
	if !names(seed, address) {
		return fmt.Errorf("%s is the key of a server at another address than %s", file, address)
	}
	return nil
}

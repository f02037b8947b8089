package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/platform"
)

// OperatorKeyFile is the file in the data directory with the NKey seed of the local operator. In an
// embedded NATS without access control, the operator has all rights in the world's account.
const OperatorKeyFile = "operator.nk"

// operatorKey is the NKey of the local operator; its zero value is none.
type operatorKey struct {
	natsconn.Key
	file string
}

// readOperatorKey reads the key from the data directory, or draws one if there is none.
func readOperatorKey(data string) (k operatorKey, err error) {
	defer func() { err = operatorKeyError(err) }()
	if k.file, err = filepath.Abs(filepath.Join(data, OperatorKeyFile)); err != nil {
		return k, err
	}
	pair, err := readKey(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		pair, err = nkeys.CreateUser()
	}
	if err == nil {
		k.Key, err = natsconn.KeyOf(pair)
	}
	return k, err
}

func operatorKeyError(err error) error {
	if err != nil {
		return fmt.Errorf("embedded: the local operator's key: %w", err)
	}
	return nil
}

// readKey reads a seed, unless other users may have read it before.
func readKey(file string) (nkeys.KeyPair, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if platform.IsShared(info) {
		return nil, fmt.Errorf("%s has mode %04o, and whoever has read it has all rights in the "+
			"world: remove the file, and the server makes another key at its next start; or, if "+
			"no other user can have read it, chmod 600 %s", file, info.Mode().Perm(), file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s holds no NKey seed: %w; "+
			"remove the file, and the server makes another at its next start", file, err)
	}
	return pair, nil
}

// write writes the seed and the server's address into the file, so that handoffctl signs nothing
// for a program at another address.
func (k *operatorKey) write(address string) error {
	seed, err := k.Seed()
	if err == nil {
		err = platform.ReplaceFile(k.file,
			fmt.Appendf(seed, "\n%s%s\n", natsconn.OperatorKeyAddress, address))
	}
	return operatorKeyError(err)
}

// OperatorKey returns the name of the file with the seed of the local operator's NKey; empty with access
// control.
func (e *NATS) OperatorKey() string { return e.accounts.operator.file }

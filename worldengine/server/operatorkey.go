package server

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/platform"
)

// OperatorKeyFile is the file in the data directory with the NKey seed of the local operator. In an
// embedded NATS without access control, the operator has all rights in the world's account.
const OperatorKeyFile = "operator.nk"

// operatorKey returns the absolute name of the file with the local operator's seed and its public
// key. The file is made at the first start.
func operatorKey(data string) (file, public string, err error) {
	defer func() { err = aboutOperatorKey(err) }()
	if file, err = filepath.Abs(filepath.Join(data, OperatorKeyFile)); err != nil {
		return "", "", err
	}
	seed, err := readOperatorKey(file)
	if errors.Is(err, fs.ErrNotExist) {
		seed, err = makeOperatorKey(file)
	}
	if err != nil {
		return "", "", err
	}
	pair, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return "", "", fmt.Errorf("%s holds no NKey seed: %w; "+
			"remove the file, and the server makes another at its next start", file, err)
	}
	defer pair.Wipe()
	public, err = pair.PublicKey()
	return file, public, err
}

func aboutOperatorKey(err error) error {
	if err != nil {
		return fmt.Errorf("server: the local operator's key: %w", err)
	}
	return nil
}

// readOperatorKey reads a seed, unless other users may have read it before.
func readOperatorKey(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if platform.IsShared(info) {
		return nil, fmt.Errorf("%s has mode %04o, and whoever has read it has all rights in the "+
			"world: remove the file, and the server makes another key at its next start; or, if "+
			"no other user can have read it, chmod 600 %s", file, info.Mode().Perm(), file)
	}
	return os.ReadFile(file)
}

// nameAddress writes the server's address into the file of the local operator's key, so that
// handoffctl signs nothing for another program that listens elsewhere.
func nameAddress(file, address string) error {
	seed, err := os.ReadFile(file)
	if err == nil {
		line, _, _ := bytes.Cut(seed, []byte("\n"))
		err = platform.ReplaceFile(file, append(append(line, '\n'), natsconn.OperatorKeyAddress+
			address+"\n"...))
	}
	return aboutOperatorKey(err)
}

// makeOperatorKey writes a new seed.
func makeOperatorKey(file string) ([]byte, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, err
	}
	seed = append(seed, '\n')
	return seed, platform.ReplaceFile(file, seed)
}

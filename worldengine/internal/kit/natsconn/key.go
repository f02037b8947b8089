package natsconn

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Key is an NKey of a user, and its public half.
type Key struct {
	nkeys.KeyPair
	Public string
}

// NewKey draws a key.
func NewKey() (Key, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return Key{}, fmt.Errorf("key of a user: %w", err)
	}
	return KeyOf(pair)
}

// KeyOf returns a pair of keys with its public half.
func KeyOf(pair nkeys.KeyPair) (Key, error) {
	public, err := pair.PublicKey()
	if err != nil {
		return Key{}, fmt.Errorf("key of a user: %w", err)
	}
	return Key{pair, public}, nil
}

// Option lets a connection in with the key.
func (k Key) Option() nats.Option { return nats.Nkey(k.Public, k.Sign) }

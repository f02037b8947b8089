// Package passwords checks the passwords with which users sign in, over NATS and HTTP.
package passwords

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"worldengine/worldengine/internal/kit/recent"
)

// Bounds of wrong passwords. After freeOfAddress wrong passwords an address is refused for a pause,
// before anything is hashed; after freeOfName wrong passwords, one name at an address is refused.
// Each further wrong password doubles the pause.
const (
	freeOfName    = 5
	freeOfAddress = 20
	minInterval   = time.Second
	maxInterval   = time.Minute
	// An address or a name counts as new when failureRetention has passed since its last wrong password.
	failureRetention = 10 * time.Minute
	// maxFailing bounds the addresses and names that are remembered.
	maxFailing = 10_000
)

// User is a user who signs in. Stored is the password that the access file has, or its bcrypt hash.
type User struct{ Name, Stored string }

// HashTimeout is how long a sign-in may wait for its hash: then NATS has closed the connection.
const HashTimeout = 2 * time.Second

// Checker checks passwords. It computes at most one bcrypt hash at a time. A password that was
// right before needs no bcrypt hash: its keyed hash is kept, never the password. It is safe for
// concurrent use.
type Checker struct {
	key     [32]byte // drawn by this process
	hashing sync.Mutex
	waiting atomic.Int64 // logins that wait for hashing

	mu      sync.Mutex
	known   map[string][32]byte // by name: the digest of the password that was right
	failing *recent.Map[failingAs, *failures]
}

// failingAs is an address, or a name at an address.
type failingAs struct{ address, name string }

type failures struct {
	count       int
	last, until time.Time
}

// New returns a checker that knows no password.
func New() *Checker {
	p := &Checker{
		known: map[string][32]byte{}, failing: recent.NewMap[failingAs, *failures](maxFailing),
	}
	_, _ = rand.Read(p.key[:]) // it never fails
	return p
}

// Right reports whether a user has a password. address counts wrong ones. During a pause it returns false without a
// comparison, unless the password was right before.
func (p *Checker) Right(address string, user User, password string) bool {
	// The digest covers the user's stored password: once that changes, the old password is wrong.
	digest := p.digest(user.Stored + "\x00" + password)
	if known, mayTry := p.lookUp(address, user.Name, digest); known || !mayTry {
		return known
	}
	right := digest == p.digest(user.Stored+"\x00"+user.Stored)
	if strings.HasPrefix(user.Stored, "$2") {
		if !p.enterHashing() {
			return false
		}
		defer p.hashing.Unlock()
		// While this login waited, others may have been right, or wrong too often.
		if known, mayTry := p.lookUp(address, user.Name, digest); known || !mayTry {
			return known
		}
		right = bcrypt.CompareHashAndPassword([]byte(user.Stored), []byte(password)) == nil
	}
	p.tried(address, user.Name, digest, right)
	return right
}

// maxHashing is how many logins may wait for their hash.
const maxHashing = 16

// enterHashing locks hashing. It reports false, without the lock, if too many logins wait for it,
// or if the wait was so long that NATS has closed the connection meanwhile.
func (p *Checker) enterHashing() bool {
	if p.waiting.Add(1) > maxHashing {
		p.waiting.Add(-1)
		return false
	}
	began := time.Now()
	p.hashing.Lock()
	p.waiting.Add(-1)
	if time.Since(began) > HashTimeout {
		p.hashing.Unlock()
		return false
	}
	return true
}

// digest returns a keyed hash: no password is kept, and the time of a comparison shows nothing.
func (p *Checker) digest(password string) (digest [32]byte) {
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(password))
	mac.Sum(digest[:0])
	return digest
}

// lookUp reports whether a name's password is known to be right, and whether the address may try
// another password for the name now.
func (p *Checker) lookUp(address, name string, digest [32]byte) (known, mayTry bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	right, found := p.known[name]
	now, mayTry := time.Now(), true
	for _, as := range []failingAs{{address, ""}, {address, name}} {
		f, failing := p.failing.Get(as)
		mayTry = mayTry && (!failing || !now.Before(f.until))
	}
	return found && right == digest, mayTry
}

// tried notes whether a password was right.
func (p *Checker) tried(address, name string, digest [32]byte, right bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if right {
		p.known[name] = digest
		if f, failing := p.failing.Get(failingAs{address, name}); failing {
			*f = failures{}
		}
		return
	}
	p.failed(failingAs{address, ""}, freeOfAddress)
	p.failed(failingAs{address, name}, freeOfName)
}

// CountWrong counts a wrong token of an address. A right one is never refused, since nobody can guess it.
func (p *Checker) CountWrong(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed(failingAs{address, ""}, freeOfAddress)
}

// failed counts a wrong password, and sets the pause after it. mu is locked.
func (p *Checker) failed(as failingAs, free int) {
	now := time.Now()
	p.failing.Add(as, new(failures))
	f, _ := p.failing.Get(as)
	if now.Sub(f.last) > failureRetention {
		*f = failures{}
	}
	f.count++
	f.last = now
	if over := f.count - free; over >= 0 {
		f.until = now.Add(min(maxInterval, minInterval<<min(over, 10)))
	}
}

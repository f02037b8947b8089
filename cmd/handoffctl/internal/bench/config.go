// Package bench measures a world engine against the NATS that it runs on: in one run, on the same
// server, with as many requests in flight, first plain request-reply with messages of the same
// sizes, then handoffs.
//
// It is a check as well: a town's next state follows from its last one by the rules, so every
// result is known before it is asked for, and each answer is held against it.
package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// Config says what is measured. Validate checks it.
type Config struct {
	// Connect makes a connection to the NATS server, over TCP. Each connection is closed at the
	// end.
	Connect func(name string) (*nats.Conn, error)
	// Streams makes one that may read the streams of the world; nil where none may.
	Streams func(name string) (*nats.Conn, error)
	// World is the world's name. The towns of the run are created in it and stay there.
	World string
	// Towns is how many towns are driven; Concurrency, at most as many, is how many requests are in
	// flight: each worker has towns of its own, and one request at a time.
	Towns, Concurrency int
	// Connections is how many client connections the workers share.
	Connections int
	// Duration is how long each phase is: the echo, the handoffs, the bare appends. However short
	// it is, each worker makes one request, and without a rate one handoff for each of its towns.
	Duration time.Duration
	// Phases is how many phases of handoffs there are, one after the other on the same towns; 1.
	Phases int
	// Rate is how many handoffs a second are offered; 0 for as many as are answered. Their latency
	// is from when they are due, so that a server that falls behind is not flattered.
	Rate float64
	// Mix is what share of the handoffs ends in which status.
	Mix Mix
	// Timeout bounds one request.
	Timeout time.Duration
}

// Validate refuses what cannot be run.
func (c *Config) Validate() error {
	var problems []error
	atLeast := func(name string, value, least int) {
		if value < least {
			problems = append(problems, fmt.Errorf("bench: %s must be at least %d, not %d",
				name, least, value))
		}
	}
	atLeast("towns", c.Towns, 1)
	atLeast("concurrency", c.Concurrency, 1)
	atLeast("connections", c.Connections, 1)
	atLeast("phases", c.Phases, 0)
	if c.Concurrency > c.Towns {
		problems = append(problems, fmt.Errorf("bench: a concurrency of %d needs as many towns, "+
			"not %d, since a town executes one handoff at a time", c.Concurrency, c.Towns))
	}
	if c.Duration < 10*time.Millisecond || c.Timeout <= 0 {
		problems = append(problems,
			errors.New("bench: the duration must be at least 10ms, the timeout above 0"))
	}
	if c.Rate < 0 || c.Rate != 0 && c.Rate*c.Duration.Seconds() < 1 {
		problems = append(problems,
			errors.New("bench: the rate must be 0 or make a handoff within the duration"))
	}
	if c.Mix.total() == 0 {
		problems = append(problems, errors.New("bench: the mix is empty"))
	}
	return errors.Join(problems...)
}

package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/wire"
)

// ErrCrossing means that the accounts of an existing NATS do not separate its clients as access
// control requires. Print the configuration of NATS again with this version of handoffd, and load
// the output.
var ErrCrossing = errors.New("server: the accounts of this NATS do not fit this version of " +
	"handoffd, so users would not be held to their rights: print them again with `handoffd " +
	"permissions`, give them to the NATS server, and start handoffd again")

// crossingTimeout bounds how long the start waits for its probes to cross.
const crossingTimeout = 10 * time.Second

// checkCrossing publishes an invalid request of each verb, {"probe":…}, in the clients' account of an
// existing NATS, without a reply subject. It returns ErrCrossing unless each request arrives in the
// world's account on the crossed subject alone. A writer of the world refuses the requests as
// invalid.
func (s *Server) checkCrossing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, crossingTimeout)
	defer cancel()
	if err := s.checkClientKeys(); err != nil {
		return err
	}
	clients, err := s.connect(probing, nil)
	if err != nil {
		return err
	}
	defer clients.Close()
	shared, arrived, missing := s.probes(), make(chan *nats.Msg, 4096), map[string]bool{}
	for _, subject := range shared {
		missing[layout.ImportedSubject(subject)] = true
	}
	subs, err := s.subscribeProbes(ctx, shared, arrived)
	defer func() {
		for _, sub := range subs {
			_ = sub.Unsubscribe() // fails only when the connection is gone
		}
	}()
	if err != nil {
		return fmt.Errorf("server: crossing: %w", err)
	}
	probe := `{"probe":"` + nuid.Next() + `"}`
	// Probes are sent until all have arrived: interest takes a while to spread in a cluster.
	for next := time.NewTimer(0); len(missing) > 0; {
		select {
		case msg := <-arrived:
			switch {
			case string(msg.Data) != probe: // a request to another writer
			case strings.HasPrefix(msg.Subject, layout.ImportedSubject("")):
				delete(missing, msg.Subject)
			default:
				return fmt.Errorf("%w (%s arrives unchanged)", ErrCrossing, msg.Subject)
			}
		case <-next.C:
			for _, subject := range shared {
				if err := clients.Publish(subject, []byte(probe)); err != nil {
					return fmt.Errorf("server: crossing: %w", err)
				}
			}
			next.Reset(200 * time.Millisecond)
		case <-ctx.Done():
			return fmt.Errorf("%w (verbs that do not cross: %d)", ErrCrossing, len(missing))
		}
	}
	return nil
}

// subscribeProbes subscribes to the subjects of probes in the world's account, crossed and not. It returns the
// subscriptions that it has made, even with an error.
func (s *Server) subscribeProbes(
	ctx context.Context, subjects []string, arrived chan *nats.Msg,
) (subs []*nats.Subscription, err error) {
	for _, subject := range subjects {
		for _, on := range []string{subject, layout.ImportedSubject(subject)} {
			sub, err := s.conns.committing.ChanSubscribe(on, arrived)
			if err != nil {
				return subs, fmt.Errorf("%s: %w", on, err)
			}
			subs = append(subs, sub)
		}
	}
	return subs, natsconn.Flush(ctx, s.conns.committing)
}

// probes returns the subjects on which checkCrossing publishes. Discovery has to bear a mark if the rights
// of a user are bounded to worlds.
func (s *Server) probes() (subjects []string) {
	for _, subject := range access.AllImports().Shared {
		subjects = append(subjects, wire.Subject(s.config.Engine.World, layout.VerbOf(subject)))
	}
	bounded := func(u access.User) bool { return len(u.Worlds) > 0 }
	if slices.ContainsFunc(s.config.Access.Users, bounded) {
		subjects = append(subjects, strings.Replace(layout.DiscoverySubjects, ">", "probe", 1))
	}
	return subjects
}

// checkClientKeys returns ErrCrossing if an external NATS does not check the "nkey" of a client
// that signs in with its password. Such a client could choose the user with whom NATS marks its
// requests. NATS checks the key only if some user has a key.
func (s *Server) checkClientKeys() error {
	to := s.config.External.Clients
	if to.NKey != "" || to.Creds != "" {
		return nil
	}
	key, err := natsconn.NewKey()
	if err != nil {
		return err
	}
	nc, err := to.Connect(s.config.External.URL, "handoffd crossing", key.Option())
	switch {
	case err == nil:
		nc.Close()
		fallthrough
	case errors.Is(err, nats.ErrNkeysNotSupported):
		return fmt.Errorf("%w (it takes a user's name from an nkey that it does not check)",
			ErrCrossing)
	}
	return nil // refused, as it must be
}

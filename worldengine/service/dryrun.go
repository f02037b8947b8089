package service

import (
	"strings"

	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// isDryRun reports whether a request asks for a dry run. The name of the header may be spelled in
// any case: a client that asks for a dry run must not have the handoff executed.
func isDryRun(header nats.Header) (bool, error) {
	for name, values := range header {
		if !strings.EqualFold(name, wire.DryRunHeader) {
			continue
		}
		switch {
		case len(values) == 1 && strings.EqualFold(values[0], "true"):
			return true, nil
		case len(values) != 1 || !strings.EqualFold(values[0], "false"):
			return false, schemas.Invalid("", schemas.Violation{
				Message: "the header " + wire.DryRunHeader + " must be true or false",
			})
		}
	}
	return false, nil
}

// route returns the endpoint that works on a request: another one for a dry run. It refuses a dry
// run of a verb that has none and would change something.
func (s *Service) route(e *endpoint, header nats.Header) (*endpoint, error) {
	if e.verb != wire.Handoff && e.verb != wire.RunAppend && !e.verb.Spec().Changes {
		return e, nil
	}
	switch dry, err := isDryRun(header); {
	case err != nil || !dry:
		return e, err
	case e.verb == wire.Handoff:
		return s.dryRuns, nil
	}
	return nil, schemas.Invalid("", schemas.Violation{
		Message: "the header " + wire.DryRunHeader + " is for " + string(wire.Handoff) +
			" alone, not for " + string(e.verb),
	})
}

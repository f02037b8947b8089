package service

import (
	"strings"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
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

// mayDryRun refuses a dry run of a verb that has none and would change something.
func mayDryRun(verb wire.Verb, header nats.Header) error {
	if len(header) == 0 || verb != wire.RunAppend && !verb.Spec().Changes {
		return nil
	}
	dry, err := isDryRun(header)
	if dry {
		err = schemas.Invalid("", schemas.Violation{
			Message: "the header " + wire.DryRunHeader + " is for " + string(wire.Handoff) +
				" alone, not for " + string(verb),
		})
	}
	return err
}

// takeDryRuns returns the handler of handoffs that are only to be judged: a pool works on them,
// beside the queues of their towns.
func (s *Service) takeDryRuns() func(*incoming, handoff.Revision) {
	p := s.addPool(s.addSlots(s.config.Waiting, 2*s.config.Waiting), s.parsers())
	limits := schemas.Limits{Bytes: s.config.MaxHandoff}
	return func(r *incoming, revision handoff.Revision) {
		bytes := requestBytes + handoffWeight*int64(len(r.data))
		held := s.admit(r, p.slots, s.townOf(r.rights, r.data), bytes)
		s.enqueue(p, held, r.reply, func() error {
			h, err := handoff.Parse(r.data, limits)
			if err != nil {
				return err
			}
			if err := mayHandOff(r.rights, h); err != nil {
				return err
			}
			judged, err := s.engine.DryRun(s.ctx, h)
			if err != nil {
				return err
			}
			body, err := resultOf(&request{handoff: h, revision: revision}, &judged.Answer)
			if err != nil {
				return err
			}
			header := revisionHeader(revision)
			header[wire.DryRunHeader] = []string{"true"}
			if judged.Apply != apply.Local && judged.Result.Executed {
				header[wire.DryRunApplyHeader] = []string{string(judged.Apply)}
			}
			held.release()
			s.observe(r.reply, "")
			s.respond(r.reply, &nats.Msg{Data: body, Header: header})
			return nil
		})
	}
}

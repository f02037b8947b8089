package fsck

import (
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/lifecycle"
)

// checkRetry checks that a run's events and the record that judges its handoff agree about the
// retried run, and that a retry has the signal that requested it.
func (s *runReplay) checkRetry(v *Verdict, of *apply.RetryOf) {
	named := ""
	if of != nil {
		named = of.RunID
		if of.LogSeq == 0 || of.LogSeq >= v.message.Seq {
			v.want("a retry names no place in the log before it", "", Text(int64(of.LogSeq)))
		}
	}
	signal, by := false, ""
	for i := range s.payloads {
		c := &s.payloads[i]
		switch c.event.EventType {
		case runevents.RunStarted:
			v.payloadHas(c, named, "context", "retryOf")
			by = payloadText(c.event.Payload, "context", "triggeredBy")
		case runevents.SignalAccepted:
			signal = true
			v.payloadHas(c, string(lifecycle.SignalRetry), "signal")
			v.payloadHas(c, named, "runId")
			v.payloadHas(c, s.town, "townId")
			if by != "" {
				v.payloadHas(c, by, "actorId")
			}
		}
	}
	switch {
	case signal && of == nil:
		v.want("a run that is no retry has a signal", "", "SignalAccepted")
	case !signal && of != nil && !s.lost:
		v.want("a retry has no signal that asked for it", "SignalAccepted", "")
	}
}

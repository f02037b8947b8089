package fsck

import (
	"context"

	"worldengine/dedupe"
	"worldengine/runevents"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/lifecycle"
)

// checkRetry checks that the events of a run say of which run it is a retry as the record does that
// judges its handoff, and that a retry has the signal that asked for it.
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

// isRetry reports whether one record of a town accepted a key after another one since its run tries
// the other's again: itself, or the run that it tries again, or the run that that one does. Each of
// those failed since no plugin or console could be reached.
func (d *receiptCheck) isRetry(
	ctx context.Context, first, second *commitlog.Message,
) (bool, error) {
	rec, err := commitlog.ReadRecord(second.Data())
	for err == nil && rec.RetryOf != nil && rec.RetryOf.LogSeq >= first.Seq {
		of := rec.RetryOf
		var m *commitlog.Message
		if m, err = commitlog.Stored(ctx, d.log, of.LogSeq); m == nil || err != nil {
			return false, err
		}
		if rec, err = commitlog.ReadRecord(m.Data()); err != nil {
			break
		}
		failed := rec.Kind == commitlog.KindHandoff && rec.Run != nil &&
			rec.Run.RunID == of.RunID &&
			m.Subject() == second.Subject() && m.Seq < second.Seq &&
			commitlog.MayBeRetried(&dedupe.Receipt{Result: rec.Result})
		if !failed || m.Seq == first.Seq {
			return failed, nil
		}
		second = m
	}
	return false, nil // a record that cannot be read is a finding about the log
}

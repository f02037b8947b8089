package fsck

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/lifecycle"
)

// payloadCheck is an event, with its place, whose payload has to agree with the result of its run.
type payloadCheck struct {
	seq     uint64
	subject string
	runSeq  int64
	event   *runevents.Event
}

// checkPayload checks the payload of an event against the result of its run.
func (v *Verdict) checkPayload(s *runReplay, c *payloadCheck, r *handoff.Result) {
	switch c.event.EventType {
	case runevents.RunStarted:
		v.payloadHas(c, s.town, "townId")
		v.payloadHas(c, r.HandoffID, "handoffId")
		v.payloadHas(c, r.Command, "command")
	case runevents.RunCompleted, runevents.RunFailed:
		v.payloadHas(c, string(r.Status), "status")
		v.payloadHas(c, string(r.ReasonCode), "reasonCode")
		v.payloadHas(c, r.ResultID, "resultId")
	case runevents.StepSkipped:
		v.payloadHas(c, string(r.ReasonCode), "reason")
	case runevents.StepFailed:
		v.checkFailure(c, r)
	case runevents.StepCompleted:
		v.checkBlock(c, r)
	}
}

// checkFailure checks why an attempt failed: the last one, which the result's record has, with
// the result's reason unless it is a plugin's own.
func (v *Verdict) checkFailure(c *payloadCheck, r *handoff.Result) {
	code := payloadText(c.event.Payload, "error", "code")
	switch last := c.seq == v.message.Seq; {
	case last && r.ReasonCode != apply.ReasonPluginRejected:
		v.payloadIs(c, string(r.ReasonCode), code)
	case code == "":
		v.payloadIs(c, "a code", "")
	}
}

// checkBlock checks that the payload of a completed step is its block of the result.
func (v *Verdict) checkBlock(c *payloadCheck, r *handoff.Result) {
	var block any
	got := c.event.Payload
	switch c.event.StepID {
	case lifecycle.StepDuplicate:
		block = r.Evaluation.DuplicateCheck
	case lifecycle.StepStale:
		block = r.Evaluation.StaleCheck
	case lifecycle.StepPrecondition:
		block = r.Evaluation.Preconditions
	case lifecycle.StepApply:
		block = r.WorldState
		got = withoutArtifacts(got)
	default:
		return
	}
	want, err := json.Marshal(block, json.Deterministic(true))
	if err == nil && (bytes.Equal(want, got) || canonicalText(want) == canonicalText(got)) {
		return
	}
	v.payloadIs(c, string(want), string(got))
}

// withoutArtifacts returns a payload without the plugin's artifacts, which no record has.
func withoutArtifacts(payload jsontext.Value) jsontext.Value {
	var members map[string]jsontext.Value
	if !bytes.Contains(payload, []byte(`"artifacts`)) || json.Unmarshal(payload, &members) != nil {
		return payload
	}
	delete(members, "artifacts")
	delete(members, "artifactsLeftOut")
	rest, err := json.Marshal(members, json.Deterministic(true))
	if err != nil {
		return payload
	}
	return rest
}

// payloadHas reports an event whose payload has not the wanted text at a path.
func (v *Verdict) payloadHas(c *payloadCheck, want string, path ...string) {
	v.payloadIs(c, want, payloadText(c.event.Payload, path...))
}

// payloadIs reports an event whose payload is not the wanted one, at the event's own place.
func (v *Verdict) payloadIs(c *payloadCheck, want, got string) {
	if want == got {
		return
	}
	found := v.finding(eventDiffers+eventTextAt(c.runSeq, c.event), want, got)
	found.Sequence, found.Subject = c.seq, c.subject
	v.Own = append(v.Own, found)
}

const eventDiffers = "the payload of an event differs from the record: "

// wantPayload reports a string in the payload of event i that is not the wanted one.
func (v *Verdict) wantPayload(run *runevents.Run, i int, want string, path ...string) {
	v.want(eventDiffers+eventText(run, i), want, payloadText(run.Events[i].Payload, path...))
}

// payloadText returns a string of a payload, a member or a member of a member, "" for none.
func payloadText(payload jsontext.Value, path ...string) string {
	for _, name := range path {
		var members map[string]jsontext.Value
		if json.Unmarshal(payload, &members) != nil {
			return string(payload)
		}
		payload = members[name]
	}
	text := ""
	if json.Unmarshal(payload, &text) != nil {
		return string(payload)
	}
	return text
}

// canonicalText returns the canonical form of JSON, and any other text as it is.
func canonicalText(data []byte) string {
	tree, err := schemas.Decode(data, schemas.Limits{Bytes: len(data) + 1})
	if err != nil {
		return string(data)
	}
	return string(handoff.AppendCanonical(nil, tree))
}

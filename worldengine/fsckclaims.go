package worldengine

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
)

// fsckClaim is an event whose payload has to say what the result of its run does, and its place.
type fsckClaim struct {
	seq     uint64
	subject string
	runSeq  int64
	event   *runevents.Event
}

// claims checks the payload of an event against the result of its run.
func (v *fsckVerdict) claims(s *fsckStory, c *fsckClaim, r *handoff.Result) {
	says := func(want string, path ...string) { v.claimed(c, want, payloadText(c.event.Payload, path...)) }
	switch c.event.EventType {
	case runevents.RunStarted:
		says(s.town, "townId")
		says(r.HandoffID, "handoffId")
		says(r.Command, "command")
	case runevents.RunCompleted, runevents.RunFailed:
		says(string(r.Status), "status")
		says(string(r.ReasonCode), "reasonCode")
		says(r.ResultID, "resultId")
	case runevents.StepSkipped:
		says(string(r.ReasonCode), "reason")
	case runevents.StepFailed:
		v.claimsFailure(c, r)
	case runevents.StepCompleted:
		v.claimsBlock(c, r)
	}
}

// claimsFailure checks why an attempt failed: the last one, which the result's record tells of, with the
// result's reason unless it is a plugin's own.
func (v *fsckVerdict) claimsFailure(c *fsckClaim, r *handoff.Result) {
	code := payloadText(c.event.Payload, "error", "code")
	switch last := c.seq == v.message.seq; {
	case last && r.ReasonCode != ReasonPluginRejected:
		v.claimed(c, string(r.ReasonCode), code)
	case code == "":
		v.claimed(c, "a code", "")
	}
}

// claimsBlock checks that what a completed step says is its block of the result.
func (v *fsckVerdict) claimsBlock(c *fsckClaim, r *handoff.Result) {
	var block any
	switch c.event.StepID {
	case stepDuplicate:
		block = r.Evaluation.DuplicateCheck
	case stepStale:
		block = r.Evaluation.StaleCheck
	case stepPrecondition:
		block = r.Evaluation.Preconditions
	case stepApply:
		block = r.WorldState
	default:
		return
	}
	want, err := json.Marshal(block, json.Deterministic(true))
	got := c.event.Payload
	if err == nil && (bytes.Equal(want, got) || canonicalText(want) == canonicalText(got)) {
		return
	}
	v.claimed(c, string(want), string(got))
}

// claimed reports an event that does not say what it has to, at its own place.
func (v *fsckVerdict) claimed(c *fsckClaim, want, got string) {
	if want == got {
		return
	}
	found := v.finding(eventDiffers+eventTextAt(c.runSeq, c.event), want, got)
	found.Sequence, found.Subject = c.seq, c.subject
	v.own = append(v.own, found)
}

const eventDiffers = "an event does not say what the record does: "

// says checks a string in the payload of event i.
func (v *fsckVerdict) says(run *runevents.Run, i int, want string, path ...string) {
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

// canonicalText returns the canonical form of JSON, and the text as it is where it is none.
func canonicalText(data []byte) string {
	tree, err := schemas.Decode(data, schemas.Limits{Bytes: len(data) + 1})
	if err != nil {
		return string(data)
	}
	return string(handoff.AppendCanonical(nil, tree))
}

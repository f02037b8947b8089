package fsck

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
)

// payloadCheck is an event, with its place, whose payload has to agree with the result of its run.
type payloadCheck struct {
	seq     uint64
	subject string
	runSeq  int64
	event   *runevents.Event
}

// payloadHas reports an event whose payload lacks the wanted text at a path.
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

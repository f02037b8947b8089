package lifecycle

import "worldengine/handoff"

// AppendJSON appends to b what json.Marshal gives of the payload, for runevents.Producer.OfRun.
// Every run has this payload and endedPayload: written by hand they cost less than by reflection.
func (p startedPayload) AppendJSON(b []byte) ([]byte, error) {
	members := [][2]string{
		{`{"townId":`, p.TownID}, {`,"actorId":`, p.ActorID}, {`,"handoffId":`, p.HandoffID},
		{`,"type":`, string(p.Type)}, {`,"command":`, p.Command},
		{`,"engineRunRef":`, p.EngineRunRef}, {`,"planRef":{"uri":`, p.PlanRef.URI},
		{`,"schemaVersion":`, p.PlanRef.SchemaVersion},
		{`},"context":{"triggeredBy":`, p.Context.TriggeredBy},
		{`,"retryOf":`, p.Context.RetryOf},
	}
	if p.Context.RetryOf == "" {
		members = members[:len(members)-1]
	}
	b, err := handoff.AppendMembers(b, members)
	return append(b, "}}"...), err
}

// AppendJSON appends to b what json.Marshal gives of the payload.
func (p endedPayload) AppendJSON(b []byte) ([]byte, error) {
	b, err := handoff.AppendMembers(b, [][2]string{
		{`{"status":`, string(p.Status)}, {`,"reasonCode":`, string(p.ReasonCode)},
		{`,"resultId":`, p.ResultID},
	})
	return append(b, '}'), err
}

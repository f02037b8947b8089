package lifecycle

import "worldengine/handoff"

// AppendJSON appends what json.Marshal gives. It is written by hand since every run has it, as
// that of endedPayload.
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
	b, err := handoff.AppendTexts(b, members)
	return append(b, "}}"...), err
}

// AppendJSON appends what json.Marshal gives.
func (p endedPayload) AppendJSON(b []byte) ([]byte, error) {
	b, err := handoff.AppendTexts(b, [][2]string{
		{`{"status":`, string(p.Status)}, {`,"reasonCode":`, string(p.ReasonCode)},
		{`,"resultId":`, p.ResultID},
	})
	return append(b, '}'), err
}

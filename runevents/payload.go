package runevents

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// details are the members of a payload that a snapshot shows. A member of unexpected shape counts
// as absent: no payload fails a projection.
type details struct {
	OccurredAt   jsontext.Value `json:"sourceOccurredAt"`
	StartedAt    jsontext.Value `json:"startedAt"`
	EngineRunRef jsontext.Value `json:"engineRunRef"`
	Reason       jsontext.Value `json:"reason"`
	Error        jsontext.Value `json:"error"`
	Artifacts    jsontext.Value `json:"artifacts"`
	ArtifactRefs jsontext.Value `json:"artifactRefs"` // as v1, section 2, names them
}

func readDetails(e *Record) details {
	return decoded[details](e.Payload)
}

// time returns when the event happened: at its source, if the payload has the time, else at emittedAt
// (v1, appendix A.1: durations use these times).
func (d details) time(e *Record) string {
	if at := decoded[string](d.OccurredAt); !parsedTime(at).IsZero() {
		return schemas.UTC(at)
	}
	return e.EmittedAt
}

func (d details) artifacts() []Artifact {
	artifacts := decoded[[]Artifact](d.Artifacts)
	if artifacts == nil {
		artifacts = decoded[[]Artifact](d.ArtifactRefs)
	}
	if artifacts == nil {
		return []Artifact{}
	}
	for i := range artifacts {
		artifacts[i].ExpiresAt = schemas.UTC(artifacts[i].ExpiresAt)
	}
	return artifacts
}

// decoded returns v as a T, or the zero T if v is absent or not one.
func decoded[T any](v jsontext.Value) T {
	var value, zero T
	if len(v) == 0 || json.Unmarshal(v, &value) != nil {
		return zero
	}
	return value
}

// parsedTime returns the zero time unless s is RFC 3339.
func parsedTime(s string) time.Time {
	at, err := schemas.ParseTime(s)
	if err != nil {
		return time.Time{}
	}
	return at
}

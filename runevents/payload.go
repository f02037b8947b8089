package runevents

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// details are the members of a payload that a snapshot shows. A member of unexpected shape counts
// as absent, so no payload makes a projection fail.
type details struct {
	OccurredAt   jsontext.Value `json:"sourceOccurredAt"`
	StartedAt    jsontext.Value `json:"startedAt"`
	EngineRunRef jsontext.Value `json:"engineRunRef"`
	Reason       jsontext.Value `json:"reason"`
	Error        jsontext.Value `json:"error"`
	Artifacts    jsontext.Value `json:"artifacts"`
	ArtifactRefs jsontext.Value `json:"artifactRefs"` // the name of artifacts in v1, section 2
}

func readDetails(e *Record) details {
	return decoded[details](e.Payload)
}

// time returns the time at which the event happened: its sourceOccurredAt if the payload has one,
// else its emittedAt (v1, appendix A.1: durations use these times).
func (d details) time(e *Record) string {
	if at := decoded[string](d.OccurredAt); !parsedTime(at).IsZero() {
		return schemas.UTC(at)
	}
	return e.EmittedAt
}

func (d details) artifacts() []Artifact {
	sizes := json.WithUnmarshalers(schemas.Integers)
	artifacts := decoded[[]Artifact](d.Artifacts, sizes)
	if artifacts == nil {
		artifacts = decoded[[]Artifact](d.ArtifactRefs, sizes)
	}
	if artifacts == nil {
		return []Artifact{}
	}
	for i := range artifacts {
		artifacts[i].ExpiresAt = schemas.UTC(artifacts[i].ExpiresAt)
	}
	return artifacts
}

// decoded returns v as a T; the zero T if v is absent, or is not a T.
func decoded[T any](v jsontext.Value, options ...json.Options) T {
	var value, zero T
	if len(v) == 0 || json.Unmarshal(v, &value, options...) != nil {
		return zero
	}
	return value
}

// parsedTime returns the time that s says; the zero time if s is not RFC 3339.
func parsedTime(s string) time.Time {
	at, err := schemas.ParseTime(s)
	if err != nil {
		return time.Time{}
	}
	return at
}

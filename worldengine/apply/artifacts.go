package apply

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// Artifacts are references to a command's data elsewhere, as its run's StepCompleted has them.
type Artifacts struct {
	References []jsontext.Value `json:"artifacts,omitzero"`
	// LeftOut counts the items of the plugin's list that are invalid, or too many.
	LeftOut int `json:"artifactsLeftOut,omitzero"`
}

// Bounds of the artifacts that the engine keeps of one command.
const (
	maxArtifacts    = 64
	maxArtifactSize = 1024 // bytes
)

// artifactsOf returns the artifacts of a plugin's list that the engine keeps. It counts the others:
// an invalid item must not hide that the command was applied.
func artifactsOf(list jsontext.Value) (kept Artifacts) {
	var items []jsontext.Value
	if len(list) == 0 || json.Unmarshal(list, &items) != nil {
		return kept
	}
	for _, item := range items {
		_, err := schemas.Parse(schemas.Artifact, item, schemas.Limits{Bytes: maxArtifactSize})
		if err != nil || len(kept.References) == maxArtifacts {
			kept.LeftOut++
			continue
		}
		kept.References = append(kept.References, item)
	}
	return kept
}

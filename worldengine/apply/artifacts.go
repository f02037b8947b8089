package apply

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/schemas"
)

// Artifacts are references to what a command left elsewhere, as StepCompleted of its run has them.
type Artifacts struct {
	References []jsontext.Value `json:"artifacts,omitzero"`
	// LeftOut counts the items of the plugin's list that are no reference, or too many.
	LeftOut int `json:"artifactsLeftOut,omitzero"`
}

// Bounds of the artifacts that the engine keeps of one command.
const (
	maxArtifacts    = 64
	maxArtifactSize = 1024 // bytes
)

// artifactsOf returns what the engine keeps of the list of a plugin. What is wrong with an item is
// no reason to forget that the command was applied, so the item is left out and counted.
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

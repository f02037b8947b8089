package mcp

import (
	"cmp"
	"fmt"
	"reflect"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Arguments of the tools. The model reads the texts of the jsonschema tags.
type (
	townArgument struct {
		TownID string `json:"townId" jsonschema:"the id of the town"`
	}
	resultArgument struct {
		Key    string `json:"idempotencyKey" jsonschema:"the idempotencyKey of the handoff, which propose returns"`
		TownID string `json:"townId" jsonschema:"the id of the town"`
	}
	worldsArgument struct {
		Limit int    `json:"limit,omitempty" jsonschema:"the largest number of worlds, from 1 to 200; 50 if it is left out"`
		After string `json:"after,omitempty" jsonschema:"go on behind this world: next of the previous page"`
	}
	townsArgument struct {
		Text  string `json:"text,omitempty" jsonschema:"only the towns whose ids contain this text"`
		State string `json:"state,omitempty" jsonschema:"only the towns in this state: paused, applying, noPlugin, waiting or inDoubt"`
		Limit int    `json:"limit,omitempty" jsonschema:"the largest number of towns, from 1 to 200; 50 if it is left out"`
		After string `json:"after,omitempty" jsonschema:"go on behind this town: next of the previous page"`
	}
	memoryArgument struct {
		TownID string `json:"townId,omitempty" jsonschema:"the id of the town; left out: all towns"`
		Limit  int    `json:"limit,omitempty" jsonschema:"the largest number of entries of each list, from 1 to 5; 5 if it is left out"`
	}
	proposalsArgument struct {
		TownID string `json:"townId" jsonschema:"the id of the town"`
		Type   string `json:"type,omitempty" jsonschema:"only this type of proposal"`
		Text   string `json:"text,omitempty" jsonschema:"only the arguments that contain this text"`
		Limit  int    `json:"limit,omitempty" jsonschema:"the largest number of arguments of each type to try, from 1 to 100; 20 if it is left out"`
		After  string `json:"after,omitempty" jsonschema:"with a type: go on behind this argument, next of the previous page"`
	}
	keyArgument struct {
		Key string `json:"idempotencyKey" jsonschema:"the idempotencyKey of the proposal, which propose returned"`
	}
	runArgument struct {
		RunID    string `json:"runId" jsonschema:"the id of the run, which propose returns"`
		AfterSeq int    `json:"afterSeq,omitempty" jsonschema:"only the events behind this runSeq: the last one of the previous page"`
		Limit    int    `json:"limit,omitempty" jsonschema:"the largest number of events, from 1 to 200; 50 if it is left out"`
	}
	proposalArgument struct {
		TownID   string   `json:"townId" jsonschema:"the id of the town"`
		Type     string   `json:"type" jsonschema:"one of the types that list_proposals returns"`
		Argument string   `json:"argument" jsonschema:"the target: one of the values that list_proposals returns for the type"`
		Reason   string   `json:"reason" jsonschema:"the reason, in a sentence for people; it is recorded"`
		Priority *float64 `json:"priority,omitempty" jsonschema:"from 0 to 1; 0.5 if it is left out"`
		Hash     string   `json:"snapshotHash,omitempty" jsonschema:"the snapshotHash of the state that you decided by, from read_town; with it the proposal is refused as stale if the town has changed since. Left out: the present state"`
	}
)

// inputs has the schemas of the tools' arguments by type, and resolved the library's preparation of each:
// both take milliseconds to make, and every session needs them.
var (
	inputs   sync.Map // of *jsonschema.Schema, by reflect.Type
	resolved = sdk.NewSchemaCache()
)

// schemaOf returns the schema of a tool's arguments. Each argument has one type, since some hosts
// refuse several; the library's own schema of a pointer has null too.
func schemaOf[In any]() *jsonschema.Schema {
	if made, is := inputs.Load(reflect.TypeFor[In]()); is {
		return made.(*jsonschema.Schema)
	}
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err)
	}
	for _, property := range schema.Properties {
		if property.Types != nil {
			property.Type, property.Types = property.Types[1], nil // the first one is null
		}
	}
	made, _ := inputs.LoadOrStore(reflect.TypeFor[In](), schema)
	return made.(*jsonschema.Schema)
}

// limitOf returns the limit of a page.
func limitOf(given, usual, most int) (int, error) {
	if given < 0 || given > most {
		return 0, fmt.Errorf("mcp: limit must be from 1 to %d, not %d", most, given)
	}
	return cmp.Or(given, usual), nil
}

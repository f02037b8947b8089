package runevents_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

var rewrite = flag.Bool("rewrite", false, "write the files of testdata anew")

// course is a run by its events: type, step or "", payload or "".
type course [][3]string

const started = `{"townId":"town-threatened","actorId":"agent-7","command":"talk casual"}`

// courses are runs of a result's five statuses, and other courses of a run.
var courses = map[string]course{
	"executed": {
		{"RunStarted", "", started},
		{"StepStarted", "duplicate-check"},
		{"StepCompleted", "duplicate-check", `{"evaluated":true,"duplicateOf":null}`},
		{"StepStarted", "stale-check"},
		{"StepCompleted", "stale-check", `{"evaluated":true,"passed":true}`},
		{"StepStarted", "precondition-check"},
		{"StepCompleted", "precondition-check", `{"evaluated":true,"passed":true,"failures":[]}`},
		{"StepStarted", "apply"}, {"StepCompleted", "apply", `{"decisionEpoch":8}`},
		{"RunCompleted", "", `{"status":"executed","reasonCode":"EXECUTED","resultId":"result_1"}`},
	},
	"failed": {
		{"RunStarted", "", started},
		{"StepStarted", "duplicate-check"}, {"StepCompleted", "duplicate-check"},
		{"StepStarted", "stale-check"}, {"StepCompleted", "stale-check"},
		{"StepStarted", "precondition-check"}, {"StepCompleted", "precondition-check"},
		{"StepStarted", "apply"},
		{"StepFailed", "apply",
			`{"error":{"code":"PROJECT_BLOCKED","message":"The town is unchanged.","retryable":false}}`},
		{"RunFailed", "",
			`{"status":"failed","reasonCode":"PROJECT_BLOCKED","resultId":"result_2"}`},
	},
	"rejected": {
		{"RunQueued"}, {"RunStarted", "", started},
		{"StepStarted", "duplicate-check"}, {"StepCompleted", "duplicate-check"},
		{"StepStarted", "stale-check"}, {"StepCompleted", "stale-check"},
		{"StepStarted", "precondition-check"}, {"StepCompleted", "precondition-check"},
		{"StepSkipped", "apply", `{"reason":"PRECONDITION_FAILED"}`},
		{"RunCompleted", "",
			`{"status":"rejected","reasonCode":"PRECONDITION_FAILED","resultId":"result_3"}`},
	},
	"stale": {
		{"RunStarted", "", started},
		{"StepStarted", "duplicate-check"}, {"StepCompleted", "duplicate-check"},
		{"StepStarted", "stale-check"}, {"StepCompleted", "stale-check"},
		{"StepSkipped", "precondition-check", `{"reason":"STALE_DECISION_EPOCH"}`},
		{"StepSkipped", "apply", `{"reason":"STALE_DECISION_EPOCH"}`},
		{"RunCompleted", "",
			`{"status":"stale","reasonCode":"STALE_DECISION_EPOCH","resultId":"result_4"}`},
	},
	"duplicate": {
		{"RunStarted", "", started},
		{"StepStarted", "duplicate-check"}, {"StepCompleted", "duplicate-check"},
		{"StepSkipped", "stale-check", `{"reason":"DUPLICATE_HANDOFF"}`},
		{"StepSkipped", "precondition-check", `{"reason":"DUPLICATE_HANDOFF"}`},
		{"StepSkipped", "apply", `{"reason":"DUPLICATE_HANDOFF"}`},
		{"RunCompleted", "",
			`{"status":"duplicate","reasonCode":"DUPLICATE_HANDOFF","resultId":"result_5"}`},
	},
	"cancelled": {
		{"RunStarted", ""}, {"StepStarted", "apply"}, {"RunPaused", "", `{"reason":"OPERATOR"}`},
		{"RunCancelled", "", `{"reason":"OPERATOR"}`},
	},
	"artifacts": {
		{"RunStarted", "", `{"engineRunRef":"mock://7","startedAt":"2026-02-16T09:59:59.5Z"}`},
		{"StepStarted", "report"},
		{"StepCompleted", "report",
			`{"artifacts":[{"uri":"s3://bucket/report","kind":"report","sha256":"ab","sizeBytes":7}]}`},
		{"StepStarted", "logs"},
		{"StepCompleted", "logs",
			`{"artifactRefs":[{"uri":"s3://bucket/logs","kind":"log-bundle","expiresAt":"2026-03-16T10:00:00Z"}]}`},
		{"RunCompleted", "", `{"artifacts":[{"uri":"s3://bucket/index","kind":"index"}]}`},
	},
	"under-way": {{"RunStarted", "", started}, {"StepStarted", "duplicate-check"}},
}

// records gives the events of the course their places in a run.
func (c course) records() []runevents.Record {
	var events []event
	for _, e := range c {
		events = append(events, event{runevents.EventType(e[0]), e[1], 1, jsontext.Value(e[2])})
	}
	return recordsOf(events)
}

func executedRun() []runevents.Record { return courses["executed"].records() }

func TestProject_Goldens(t *testing.T) {
	t.Parallel()
	files := map[string]bool{}
	check := func(name string, records []runevents.Record) {
		file := filepath.Join("testdata", "projections", name+".json")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := project(t, records)
			got, err := json.Marshal(s.View(), jsontext.WithIndent("  "))
			require.NoError(t, err)
			got = append(got, '\n')
			if *rewrite {
				require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "go test ./runevents -run TestProject_Goldens -rewrite writes it")
			require.Equal(t, string(want), string(got))
		})
	}
	for name, c := range courses {
		check(name, c.records())
	}
	check("inconsistent", parseRecords(t, "RunStarted "+started+"; StepCompleted apply; StepStarted apply; "+
		"RunResumed; RunCompleted; StepFailed apply"))
	check("no-events", nil)
	at := func(second int) string {
		return fmt.Sprintf(` {"sourceOccurredAt":"2026-02-16T09:00:%02dZ"}; `, second)
	}
	// Durations use the times at the source, if the events have them (v1, appendix A.1).
	check("durations", parseRecords(t, "RunStarted"+at(1)+"StepStarted a"+at(2)+"StepCompleted a"+at(5)+
		"StepStarted b"+at(5)+"StepFailed b"+at(7)+"RunCompleted"+at(11)))
	check("times-in-utc", parseRecords(t, `RunStarted {"startedAt":"2016-12-31T23:59:60+00:00"}; `+
		`RunCompleted {"sourceOccurredAt":"2017-01-01t00:00:01z",`+
		`"artifacts":[{"uri":"s3://a","expiresAt":"2017-01-02T00:00:00-00:00"}]}`))
	check("clock-runs-backwards", parseRecords(t, "RunStarted"+at(5)+"RunCompleted"+at(3)))
	stored, err := filepath.Glob(filepath.Join("testdata", "projections", "*"))
	require.NoError(t, err)
	for _, file := range stored {
		require.True(t, files[file], "%s is of no case any more", file)
	}
}

package schemas_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/schemas"
)

func BenchmarkValidateHandoff(b *testing.B) {
	tree, err := schemas.Decode(handoff(b), schemas.Limits{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := schemas.Validate(schemas.ExecutionHandoff, tree); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkValidateHandoffLibrary measures the library's own validator.
func BenchmarkValidateHandoffLibrary(b *testing.B) {
	tree, err := schemas.Decode(handoff(b), schemas.Limits{})
	require.NoError(b, err)
	s := oracle()[schemas.ExecutionHandoff]
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Validate(tree); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	run := func(name string, n schemas.Name, data []byte) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = schemas.Parse(n, data, schemas.Limits{})
			}
		})
	}
	run("handoff", schemas.ExecutionHandoff, handoff(b))
	for _, n := range []schemas.Name{schemas.ExecutionResult, schemas.Snapshot,
		schemas.RunEventRecord} {
		data, err := json.Marshal(example(b, n))
		require.NoError(b, err)
		run(string(n), n, data)
	}
	run("invalid handoff", schemas.ExecutionHandoff, []byte(`{}`))
	tags := strings.Repeat("0,", 500_000) + "0"
	run("half a million violations", schemas.Proposal, []byte(`{"reasonTags":[`+tags+`]}`))
}

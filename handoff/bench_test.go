package handoff_test

import (
	"testing"

	"worldengine/handoff"
	"worldengine/schemas"
)

func BenchmarkParse(b *testing.B) {
	data := []byte(compacted(b, validHandoff(b)))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := handoff.Parse(data, schemas.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewResult(b *testing.B) {
	vector := vectors[resultVector](b, "results.json")[0]
	h, outcome := parsed(b, vector.Handoff), vector.outcome()
	b.ReportAllocs()
	for b.Loop() {
		handoff.NewResult(h, outcome)
	}
}

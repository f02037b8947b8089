package handoff_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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

func BenchmarkMarshalResult(b *testing.B) {
	vector := vectors[resultVector](b, "results.json")[0]
	r := handoff.NewResult(parsed(b, vector.Handoff), vector.outcome())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.MarshalWire(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendCanonical(b *testing.B) {
	type snapshotVector struct{ CanonicalJSON string }
	text := []byte(vectors[snapshotVector](b, "snapshots.json")[0].CanonicalJSON)
	tree := decoded(b, text)
	var dst []byte
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		dst = handoff.AppendCanonical(dst[:0], tree)
	}
	require.Equal(b, string(text), string(dst))
}

func BenchmarkMarshalHandoff(b *testing.B) {
	h := parsed(b, validHandoff(b))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.MarshalWire(); err != nil {
			b.Fatal(err)
		}
	}
}

package service

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuessTown(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"townId":"a"}`: "a",
		` { "proposal" : {"townId" :` + "\n\t" + `"a b"}}`: "a b",
		`{"reason":"townId","townId":"a"}`:                 "a", // a text that reads like the name
		`{"reason":"say \"townId\":\"x\"","townId":"a"}`:   "a", // a text within a text
		`{"townId":7,"proposal":{"townId":"a"}}`:           "a",
		`{"townId":"a\u0062"}`:                             `a\u0062`, // as it is spelled
		`{"townId":"a\"b"}`:                                `a\`,      // wrong, but the same each time
		`{"townId":""}`:                                    "",
		`{"townId":"a`:                                     "",
		`{"townId"`:                                        "",
		`{"townId":`:                                       "",
		`{"town":"a"}`:                                     "",
		``:                                                 "",
		`{"townId":"` + strings.Repeat("x", maxGuess) + `"}`:   strings.Repeat("x", maxGuess),
		`{"townId":"` + strings.Repeat("x", maxGuess+1) + `"}`: "",
		strings.Repeat(" ", guessWithin) + `{"townId":"a"}`:    "",
	} {
		require.Equal(t, want, string(guess(aboutTown, []byte(payload))), "%.80s", payload)
	}
}

// Of what agents really send, the guess is right.
func TestGuessTownOfHandoffs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../testdata/vectors/handoffs.valid.json")
	require.NoError(t, err)
	var vectors []struct{ Handoff json.RawMessage }
	require.NoError(t, json.Unmarshal(data, &vectors))
	require.NotEmpty(t, vectors)
	for _, v := range vectors {
		var h struct {
			Proposal struct{ TownID json.RawMessage }
		}
		require.NoError(t, json.Unmarshal(v.Handoff, &h))
		require.Equal(t, strings.Trim(string(h.Proposal.TownID), `"`), string(guess(aboutTown, v.Handoff)))
	}
}

func FuzzGuessTown(f *testing.F) {
	for _, seed := range []string{`{"townId":"a"}`, `{"proposal":{"townId" : "b"`, `"townId""townId":"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		id := guess(aboutTown, data)
		require.LessOrEqual(t, len(id), maxGuess)
		require.NotContains(t, string(id), `"`)
		require.Contains(t, string(data), string(id))
	})
}

// BenchmarkRefuse is what the look at a request costs that gets no place: 1.2 KB, and 256 KB without a
// town.
func BenchmarkRefuse(b *testing.B) {
	data, err := os.ReadFile("../../testdata/vectors/handoffs.valid.json")
	require.NoError(b, err)
	var vectors []struct{ Handoff json.RawMessage }
	require.NoError(b, json.Unmarshal(data, &vectors))
	for name, payload := range map[string][]byte{
		"handoff": vectors[0].Handoff, "256 KB without a town": []byte(strings.Repeat(`"townid":`, 256<<10/9)),
	} {
		b.Run(name, func(b *testing.B) {
			p := newPlaces(1, 2)
			p.take(guess(aboutTown, payload))
			b.ReportAllocs()
			for b.Loop() {
				p.take(guess(aboutTown, payload))
			}
		})
	}
}

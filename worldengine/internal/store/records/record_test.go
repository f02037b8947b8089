package records

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/approval"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/percent"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// A record reads back with every member: it is written by hand, member by member.
func TestEncode_ReadsBack(t *testing.T) {
	t.Parallel()
	state := towntest.Threatened()
	policy := approval.Policy{Types: []handoff.ProposalType{handoff.AdvanceProject}}
	after := &machine.Town{State: state, Removed: &state, Binding: apply.Plugin, Policy: &policy,
		Approvals: approval.List{{HandoffID: "h", SnapshotHash: state.Hash,
			Handoff: jsontext.Value(`{"b":2}`), At: time.Unix(1, 0).UTC(),
			Expires: time.Unix(2, 0).UTC()}},
		Paused: &messages.PausedBy{Reason: `a "reason"`},
		Pending: &apply.Pending{Binding: apply.Plugin, Attempt: 2, Expected: state.Canonical,
			Handoff: jsontext.Value(`{"a":1}`), Accepted: time.Unix(1, 0).UTC()}}
	rules := town.DefaultRules()
	rec := &machine.Record{Kind: machine.KindRepair, Rules: &rules, TownID: `a "town"/é`, ActorID: "ada lovelace", Closing: true, Inconsistent: true,
		Settings: []machine.Setting{{Name: "apply", Value: "local"}},
		Repair:   &machine.Repair{Restores: 3, Lost: []machine.LostMessage{{Sequence: 4, RunID: "r"}}},
		Result:   jsontext.Value(`{"result":1}`), WorldPolicy: &policy,
		RetryOf: &apply.RetryOf{RunID: "run-0", LogSeq: 3},
		Handoff: jsontext.Value(`{"handoff":2}`), Addition: &handoff.Addition{},
		Run: &runlog.Run{Identity: runevents.Identity{RunID: "run-1"}}}
	msg, err := Encode(rec, "subject", after)
	require.NoError(t, err)
	read, err := Read(msg.Data)
	require.NoError(t, err)
	members := reflect.ValueOf(rec).Elem()
	for i := range members.NumField() {
		field := members.Type().Field(i)
		require.True(t, field.Tag.Get("json") == "-" || !members.Field(i).IsZero(),
			"this test leaves out %s", field.Name)
	}
	require.Equal(t, rec.Run.Identity, read.Run.Identity)
	read.Run, rec.Run = nil, nil
	require.Equal(t, rec, read)
	got, err := read.State(msg.Header.Get(layout.HashHeader))
	require.NoError(t, err)
	require.Equal(t, state.Hash, got.Hash)

	townID, err := percent.Decode(msg.Header.Get(layout.TownHeader))
	require.NoError(t, err)
	require.Equal(t, rec.TownID, townID)
	require.Equal(t, state.Epoch(), commitlog.EpochOf(msg.Header))
	require.Equal(t, "run-1", msg.Header.Get(wire.RunIDHeader))
	require.Equal(t, "mend", msg.Header.Get(layout.KindHeader))
	require.Equal(t, "true", msg.Header.Get(layout.AskedHeader))
	require.Equal(t, "ada%20lovelace", msg.Header.Get(layout.ActorHeader))
}

// A body is packed, but a short one, since an S2 block of 123 bytes starts with '{'. The records
// from before packing are JSON.
func TestBody(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, '{', minPacked - 1, minPacked, 100_000} {
		text := []byte("{" + strings.Repeat(" ", size-2) + "}")
		data := (&body{json: text}).pack()
		require.Equal(t, size < minPacked, data[0] == '{')
		for _, stored := range [][]byte{data, text} {
			read, err := Body(stored)
			require.NoError(t, err)
			require.Equal(t, text, read)
		}
	}
}

// A stored body is readable for ever: it needs the dictionary that it was packed with.
func TestBody_Stored(t *testing.T) {
	t.Parallel()
	const stored = "0gIVADMgcml2ZXJiZW5kKhoJIjgOADf+OA4ANSo5DgA1ajkOADdSOQ4EbWkuiiUATQkOLtkNLisO1tkNLocN" +
		"OQsEfX0="
	data, err := base64.StdEncoding.DecodeString(stored)
	require.NoError(t, err)
	body, err := Body(data)
	require.NoError(t, err)
	require.Equal(t, `{"schemaVersion":"commit-record.v1","kind":"put","townId":"riverbend","snapshot":`+
		`{"day":7,"latestNetherEvent":null,"mission":null,"pressure":{"dread":0.25,"hope":0.55,`+
		`"scarcity":0.3,"threat":0.7},"projects":[{"id":"mill","name":"Mill","progress":0.2,`+
		`"status":"active"}],"schemaVersion":"snapshot.v1","sideQuests":[],"townId":"riverbend"}}`,
		string(body))
	require.Equal(t, "04f185d3956eeddd1ae06c1913472452a314251de6acc6bc8c2e7e888e651628",
		fmt.Sprintf("%x", sha256.Sum256(dictionaryText)), "dictionary.txt must not change")
}

// A town id that is too long for a header is in the record alone.
func TestEncode_LongTownID(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{maxTextHeader: true, maxTextHeader + 1: false} {
		rec := &machine.Record{Kind: machine.KindPut, TownID: strings.Repeat("a", n)}
		msg, err := Encode(rec, "subject", &machine.Town{State: towntest.Threatened()})
		require.NoError(t, err)
		require.Equal(t, want, msg.Header.Get(layout.TownHeader) != "", n)
		read, err := Read(msg.Data)
		require.NoError(t, err)
		require.Equal(t, rec.TownID, read.TownID)
	}
}

func TestReadRecord_Damaged(t *testing.T) {
	t.Parallel()
	packed := (&body{json: towntest.Threatened().Canonical}).pack()
	for body, want := range map[string]string{
		"":                    "not a commit record",
		"{":                   "not a commit record",
		`[]`:                  "not a commit record",
		`{"schemaVersion":7}`: "not a commit record",
		`{"schemaVersion":"a","townId":"t","townId":"u"}`: "not a commit record",
		`{}`:                                        `a commit record of version ""; this engine reads commit-record.v1`,
		`{"schemaVersion":"commit-record.v2"}`:      `of version "commit-record.v2"`,
		`{"schemaVersion":"commit-record.v1"}{}`:    "not a commit record",
		`{"schemaVersion":"commit-record.v1",`:      "not a commit record",
		"{\"schemaVersion\":\"commit-record.v1\x00": "not a commit record",
		string(packed[:len(packed)-1]):              "not a commit record: s2: corrupt input",
		"\xff\xff\xff\xff\x0f":                      "not a commit record: s2: decoded block is too large",
	} {
		_, err := Read([]byte(body))
		require.ErrorContains(t, err, want, "%q", body)
	}
}

// A state that does not match its header's hash is damaged, although it can be read.
func TestRecord_DamagedState(t *testing.T) {
	t.Parallel()
	state := towntest.Threatened()
	for name, c := range map[string]struct {
		snapshot jsontext.Value
		hash     string
		want     string
	}{
		"none":        {nil, state.Hash, `the stored state of "t"`},
		"cut":         {state.Canonical[:30], state.Hash, `the stored state of "t"`},
		"no snapshot": {jsontext.Value(`{}`), state.Hash, `the stored state of "t"`},
		"another state": {towntest.Threatened(towntest.Calmer).Canonical, state.Hash,
			"its message says " + state.Hash},
		"no hash": {state.Canonical, "", "has the hash " + state.Hash},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := (&machine.Record{TownID: "t", Snapshot: c.snapshot}).State(c.hash)
			require.ErrorContains(t, err, c.want)
		})
	}
}

package lifecycle

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
)

// A payload that is written by hand is what the library writes, whatever its texts are, and what
// that one refuses is refused.
func TestPayloadsAreWrittenAsByReflection(t *testing.T) {
	t.Parallel()
	type appender interface {
		AppendJSON(b []byte) ([]byte, error)
	}
	for _, text := range []string{
		"", "x", `quote " and \`, "tab\t\x01", "é€😀\u2028", "</script>&'", "\xff",
	} {
		for _, payload := range []appender{
			startedPayload{TownID: text, ActorID: "a", HandoffID: "h", Type: "T",
				Context: runContext{TriggeredBy: "a"}},
			startedPayload{Context: runContext{TriggeredBy: "x", RetryOf: "r" + text}},
			filled[startedPayload](t, text), filled[endedPayload](t, text),
		} {
			want, wantErr := json.Marshal(payload)
			got, err := payload.AppendJSON([]byte("before"))
			require.Equal(t, wantErr == nil, err == nil, "%+v: %v", payload, err)
			if err == nil {
				require.Equal(t, "before"+string(want), string(got))
			}
		}
	}
}

// filled returns a payload in which every text is text and its member's name, so that one which is
// added is not left out.
func filled[P any](t *testing.T, text string) P {
	t.Helper()
	var payload P
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			if member := v.Field(i); member.Kind() == reflect.Struct {
				fill(member)
			} else {
				require.Equal(t, reflect.String, member.Kind(), v.Type().Field(i).Name)
				member.SetString(text + v.Type().Field(i).Name)
			}
		}
	}
	fill(reflect.ValueOf(&payload).Elem())
	return payload
}

// The end of an attempt that left nothing elsewhere is the state alone, which has the same bytes.
func TestWhatAnAttemptLeaves(t *testing.T) {
	t.Parallel()
	hash, epoch := strings.Repeat("a", 64), int64(7)
	state := &handoff.WorldState{SnapshotHash: &hash, DecisionEpoch: &epoch}
	for i, left := range []apply.Artifacts{
		{}, {LeftOut: 2}, {References: []jsontext.Value{}},
		{References: []jsontext.Value{[]byte(`{"uri":"a"}`)}, LeftOut: 1},
	} {
		want, err := json.Marshal(appliedPayload{*state, left})
		require.NoError(t, err)
		got, err := json.Marshal(applied(state, left))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), fmt.Sprint(i))
	}
}

package runlog_test

import (
	"encoding/json"
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/runevents/runeventstest"
	"worldengine/worldengine/internal/core/runlog"
)

var persistedAt = time.Date(2026, 2, 16, 11, 0, 0, 250_999_999, time.FixedZone("CET", 3600))

// source counts: the nth id ends in n, and every look at the clock is 1 ms later.
func source() runlog.Source {
	ids, ticks := 0, 0
	return runlog.Source{
		Now: func() time.Time {
			ticks++
			return time.Date(2026, 2, 16, 10, 0, 0, 0,
				time.UTC).Add(time.Duration(ticks) * time.Millisecond)
		},
		NewID: func() string {
			ids++
			return runeventstest.NumberedID(ids)
		},
	}
}

// wholeRun emits a run with one completed and one skipped step.
func wholeRun(t testing.TB, p *runlog.Producer) {
	t.Helper()
	require.NoError(t, emitRun(p, runevents.RunStarted, map[string]any{"townId": "alpha"}))
	require.NoError(t, emitStep(p, runevents.StepStarted, "stale-check", nil))
	require.NoError(t,
		emitStep(p, runevents.StepCompleted, "stale-check", map[string]any{"passed": true}))
	require.NoError(t, emitStep(p, runevents.StepSkipped, "apply", map[string]any{"reason": "STALE"}))
	require.NoError(t, emitRun(p, runevents.RunCompleted, nil))
}

func mustMarshal(w runevents.Write) []byte {
	data, err := json.Marshal(&w)
	if err != nil {
		return nil
	}
	return data
}

// stepEvent is an event of an attempt of a step, or with "" of the run.
func stepEvent(event runevents.EventType, step string, attempt int64) runlog.Event {
	return runlog.Event{EventType: event, StepID: step, LogicalAttemptID: attempt}
}

// happening is an event in the text of a test: TYPE [STEP] [#ATTEMPT] [@RUNSEQ] [MEMBER=VALUE …]
// [PAYLOAD]. "; " separates events.
type happening struct {
	runlog.Event
	runSeq  int64             // -1 for the next one
	members map[string]string // of the write, other than these
}

func happenings(t testing.TB, text string) (all []happening) {
	t.Helper()
	for part := range strings.SplitSeq(text, "; ") {
		fields, payload, found := strings.Cut(part, "{")
		words := strings.Fields(fields)
		if len(words) == 0 {
			continue
		}
		h := happening{Event: stepEvent(runevents.EventType(words[0]), "", 1), runSeq: -1,
			members: map[string]string{}}
		if found {
			h.Payload = jsontext.Value("{" + payload)
		}
		for _, word := range words[1:] {
			name, value, isMember := strings.Cut(word, "=")
			n, err := strconv.ParseInt(word[1:], 10, 64)
			switch {
			case isMember:
				h.members[name] = value
			case word[0] == '#' && err == nil:
				h.LogicalAttemptID = n
			case word[0] == '@' && err == nil:
				h.runSeq = n
			default:
				h.StepID = word
			}
		}
		all = append(all, h)
	}
	return all
}

// emitRun emits an event of the run, and emitStep one of the first attempt of a step.
func emitRun(p *runlog.Producer, event runevents.EventType, payload any) error {
	return emitStep(p, event, "", payload)
}

func emitStep(p *runlog.Producer, event runevents.EventType, stepID string, payload any) error {
	return p.Emit(runlog.Emission{Type: event, StepID: stepID, Payload: payload})
}

// allEvents are the events that move a run or a step, and some that are none.
var allEvents = slices.Concat(runevents.EventTypes(runevents.RunLevel),
	runevents.EventTypes(runevents.StepLevel), []runevents.EventType{"CostAttributed", "runStarted", ""})

// CI draws more: see .ci/run.
var drawnTimes = flag.Int("drawn.times", 1,
	"how many times as many random cases as by default are tried if that takes long")

var rewrite = flag.Bool("rewrite", false, "write the files of testdata anew")

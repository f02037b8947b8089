package machine

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/core/runlog"
)

// greedy is an event whose step draws one id more than MaxIDs.
type greedy struct{ Event }

func (e greedy) effect(s *step) (Output, error) {
	for range e.MaxIDs() {
		if s.newID() == "" {
			return Output{}, nil // too early: Step does not name the defect
		}
	}
	if s.newID() == "" {
		return Output{}, runlog.ErrBadID // of a producer
	}
	return Output{}, nil
}

// Whichever event's step draws more ids than MaxIDs, the error says so.
func TestEvent_MaxIDs(t *testing.T) {
	t.Parallel()
	events := []Event{
		new(EndAttempt), new(RecordReach), new(RecordAttempt), new(PauseRun), new(Cancel), new(Put), new(Patch),
		new(Remove), new(Judge), new(Signal), new(RecordSignal), new(Wait), new(CancelWaiting),
	}
	var known []string
	for _, event := range events {
		known = append(known, fmt.Sprintf("%T", event))
		in := Input{Event: greedy{event}, IDs: make([]string, event.MaxIDs())}
		for i := range in.IDs {
			in.IDs[i] = "id"
		}
		_, err := Step(Town{}, &in, new(Settings))
		require.ErrorIs(t, err, runlog.ErrBadID)
		require.ErrorContains(t, err, fmt.Sprint("more ids than its MaxIDs, ", event.MaxIDs()), known)
	}
	require.ElementsMatch(t, declaredEvents(t), known)
}

// declaredEvents returns the types of this package that have an effect.
func declaredEvents(t *testing.T) (types []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	effect := regexp.MustCompile(`(?m)^func \(\w+ \*(\w+)\) effect\(`)
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		source, err := os.ReadFile(file.Name())
		require.NoError(t, err)
		for _, found := range effect.FindAllSubmatch(source, -1) {
			types = append(types, "*machine."+string(found[1]))
		}
	}
	return types
}

package runevents_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// A filter treats two alerts as one if and only if their IDs are equal.
func TestAnAlertFilterGoesByTheID(t *testing.T) {
	t.Parallel()
	var all []runevents.Alert
	for _, eventID := range []string{"", "e1"} {
		for _, handoffID := range []string{"", "h1", "h2"} {
			for _, letter := range []string{"", "d1"} {
				for _, townID := range []string{"", "t1"} {
					for _, since := range []string{"", "s1", "s2"} {
						all = append(all, runevents.Alert{
							Code: runevents.ApplyInDoubt, RunID: "run", EventID: eventID,
							HandoffID: handoffID, DeadLetter: letter, TownID: townID, Since: since,
						})
					}
				}
			}
		}
	}
	filter, known := runevents.NewAlertFilter(0), map[string]bool{}
	for i := range all {
		id := all[i].ID()
		require.Equal(t, !known[id], filter.First(&all[i]), id)
		known[id] = true
	}
	require.Greater(t, len(known), 10)
}

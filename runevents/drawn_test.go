package runevents_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// Ids that were drawn and stored are the ids of the later events, whoever continues the run; other
// events get new ids.
func TestDrawnIDsAreADurableRegistry(t *testing.T) {
	t.Parallel()
	toCome := []runevents.Event{
		{EventType: runevents.RunStarted, LogicalAttemptID: 1},
		{EventType: runevents.StepSkipped, StepID: "apply", LogicalAttemptID: 1},
	}
	drawn, err := runevents.DrawIDs(identity, source().NewID, nil, toCome...)
	require.NoError(t, err)
	ids := func() (list []string) {
		p := runevents.NewProducer(identity,
			runevents.Source{Now: source().Now, NewID: func() string {
				return "ffffffff-0000-4000-8000-000000000001"
			}})
		p.UseIDs(drawn)
		wholeRun(t, p)
		for _, e := range p.Run().Events {
			list = append(list, e.EventID)
		}
		return list
	}
	require.Equal(t, []string{drawn[0].EventID, drawn[1].EventID}, []string{ids()[0], ids()[3]})
	require.Equal(t, ids(), ids())

	again, err := runevents.DrawIDs(identity, source().NewID, drawn,
		append(toCome[1:], runevents.Event{
			EventType: runevents.RunCompleted, LogicalAttemptID: 1,
		})...)
	require.NoError(t, err)
	require.Equal(t, drawn[1], again[0], "what was drawn stays")
	_, err = runevents.DrawIDs(identity, func() string { return "no id" }, nil, toCome...)
	require.ErrorIs(t, err, runevents.ErrBadID)
}

// Two runs have different ids for the same events: ids are drawn, not derived.
func TestIDsAreDrawnForARun(t *testing.T) {
	t.Parallel()
	other := identity
	other.RunID = "another"
	toCome := runevents.Event{EventType: runevents.RunStarted, LogicalAttemptID: 1}
	from := source()
	a, err := runevents.DrawIDs(identity, from.NewID, nil, toCome)
	require.NoError(t, err)
	b, err := runevents.DrawIDs(identity, from.NewID, nil, toCome)
	require.NoError(t, err)
	c, err := runevents.DrawIDs(other, from.NewID, a, toCome)
	require.NoError(t, err)
	require.Equal(t, a[0].IdempotencyKey, b[0].IdempotencyKey)
	require.NotEqual(t, a[0].EventID, b[0].EventID)
	require.NotEqual(t, a[0], c[0])
}

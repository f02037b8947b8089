package runevents_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// A seed that is written down gives the events to come the same ids to whoever goes on with the run, and
// another seed others: they are drawn, not derived from what the event says.
func TestASeedIsADurableRegistry(t *testing.T) {
	t.Parallel()
	ids := func(seed string) []string {
		p := runevents.NewProducer(identity, source())
		p.DrawIDs(seed)
		wholeRun(t, p)
		var list []string
		for _, e := range p.Run().Events {
			id, err := uuid.Parse(e.EventID)
			require.NoError(t, err)
			require.Equal(t, uuid.Version(4), id.Version())
			require.Equal(t, uuid.RFC4122, id.Variant())
			require.NotContains(t, list, e.EventID)
			list = append(list, e.EventID)
		}
		return list
	}
	require.Equal(t, ids("a seed"), ids("a seed"))
	for _, id := range ids("another seed") {
		require.NotContains(t, ids("a seed"), id)
	}
}

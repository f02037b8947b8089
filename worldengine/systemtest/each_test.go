package systemtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/messages"
)

// A list lacks only the town whose last message was changed on the disk, even before anything was
// read since the start, when NATS has not searched the block yet.
func TestListOfADamagedTown(t *testing.T) {
	t.Parallel()
	for name, damaged := range map[string]int{"the first": 0, "in the middle": 2, "the last": 4} {
		t.Run(name, func(t *testing.T) {
			w := newCheckedWorld(t, worldengine.Config{})
			towns := []string{"a", "b", "c", "d", "e"}
			var last []*handoff.Handoff
			for _, id := range towns {
				done, _ := w.talked(w.found(id), 1)
				last = append(last, done...)
			}
			w.clean()
			place := w.placeOf(last[damaged])
			w.flipInLog(place)
			for range 2 {
				listed, err := w.engine.List(t.Context(),
					worldengine.TownQuery{TownList: messages.TownList{Limit: 10}})
				require.NoError(t, err)
				require.Empty(t, listed.Next)
				var ids []string
				for _, s := range listed.Towns {
					ids = append(ids, s.TownID)
				}
				require.Equal(t, append(append([]string{}, towns[:damaged]...),
					towns[damaged+1:]...), ids)
			}
			require.Equal(t, []uint64{place}, named(w.fsck(fsck.Options{})))
		})
	}
}

package runevents_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

func TestPayloadsAreDeterministic(t *testing.T) {
	t.Parallel()
	payload := map[string]any{}
	for i := range 50 {
		payload[fmt.Sprint(i)] = i
	}
	var first string
	for range 20 {
		p := runevents.NewProducer(identity, source())
		require.NoError(t, p.OfRun(runevents.RunStarted, payload))
		if got := string(p.Run().Events[0].Payload); first == "" {
			first = got
		} else {
			require.Equal(t, first, got)
		}
	}
}

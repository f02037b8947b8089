package runevents_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
)

// written is a payload that writes itself.
type written string

func (w written) AppendJSON(b []byte) ([]byte, error) {
	if w == "\xff" {
		return nil, errors.New("not valid UTF-8")
	}
	return append(b, w...), nil
}

// Payloads that write themselves are each their own, also beside others, beyond the memory that
// they share at first, and after a restart.
func TestPayloadsThatWriteThemselves(t *testing.T) {
	t.Parallel()
	p := runevents.NewProducer(identity, source())
	payload := func(i int) string {
		return fmt.Sprintf(`{"%d":"%s"}`, i, strings.Repeat("x", i*99))
	}
	check := func(events []runevents.Event) {
		for i, e := range events {
			require.Equal(t, payload(i), string(e.Payload))
			require.Equal(t, len(e.Payload), cap(e.Payload), "appending to it changes no other")
		}
	}
	require.NoError(t, p.OfRun(runevents.RunStarted, written(payload(0))))
	for i := 1; i < 20; i++ {
		require.NoError(t, p.OfStep(runevents.StepStarted, fmt.Sprint(i), written(payload(i))))
	}
	check(p.Run().Events)
}

// A run that somebody still reads keeps its payloads when the producer begins again.
func TestARunKeepsItsPayloads(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*runevents.Producer){
		"restart":   func(p *runevents.Producer) { p.Restart() },
		"persisted": func(p *runevents.Producer) { p.Persisted(2) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := runevents.NewProducer(identity, source())
			p.ResumeAt(runevents.RunRunning)
			require.NoError(t, p.OfStep(runevents.StepStarted, "a", written(`{"first":1}`)))
			before := *p.Run()
			begin(p)
			require.NoError(t, p.OfStep(runevents.StepStarted, "b", written(`{"other":2}`)))
			require.Equal(t, `{"first":1}`, string(before.Events[0].Payload))
			require.Equal(t, `{"other":2}`, string(p.Run().Events[0].Payload))
			require.Equal(t, "a", before.Events[0].StepID)
		})
	}
}

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

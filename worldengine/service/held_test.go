package service

import (
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/queue"
	"worldengine/worldengine/wire"
)

// arriving is a request whose client waits for no answer.
func arriving(data string) *incoming { return &incoming{data: []byte(data)} }

// As many requests of each verb are held as docs/overload.md says: about one town, run or key, or
// about none, and then some more about another one.
func TestHowManyRequestsAreHeld(t *testing.T) {
	t.Parallel()
	const many, few = 4096, 128
	town := [2]string{`{"townId":"a"}`, `{"townId":"b"}`}
	run := [2]string{`{"runId":"a"}`, `{"runId":"b"}`}
	key := [2]string{`{"idempotencyKey":"a"}`, `{"idempotencyKey":"b"}`}
	rows := map[wire.Verb]struct {
		about [2]string
		held  int
	}{
		"town.get":        {town, many},
		"town.history":    {town, many},
		"town.list":       {[2]string{`{}`, town[0]}, few},
		"result.get":      {key, many},
		"run.get":         {run, many},
		"run.list":        {town, few},
		"run.events":      {run, many},
		"run.cancel":      {run, many},
		"run.retry":       {run, many},
		"control.pause":   {town, many},
		"control.resume":  {town, many},
		"control.get":     {[2]string{`{}`, town[0]}, many},
		"alert.list":      {[2]string{`{}`, town[0]}, few},
		"alert.ack":       {[2]string{`{}`, town[0]}, many},
		"approval.list":   {[2]string{`{}`, town[0]}, few},
		"approval.decide": {[2]string{`{}`, town[0]}, many},
		"whoami":          {[2]string{`{}`, town[0]}, many},
	}
	// These share slots with bounds of their own, those of handoffs.
	others := []wire.Verb{"handoff", "town.put", "town.patch", "run.append"}
	require.ElementsMatch(t, wire.Verbs(), slices.AppendSeq(others, maps.Keys(rows)))
	for verb, want := range rows {
		handle, s := unread(t, verb)
		for range want.held {
			handle(arriving(want.about[0]))
		}
		require.Equal(t, want.held, s.Overload().Held, verb)
		handle(arriving(want.about[0]))
		require.Equal(t, int64(1), s.Overload().Refused["town"], verb)
		handle(arriving(want.about[1]))
		require.Equal(t, want.held+1, s.Overload().Held, "%s: another one is held", verb)
	}
}

// unread returns what takes the requests of a verb in a service that has no readers: what it takes
// stays.
func unread(t *testing.T, verb wire.Verb) (func(*incoming), *Service) {
	t.Helper()
	config := Config{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	config.Readers = -1
	s := &Service{config: config, changes: queue.NewSlots(1, 1)}
	s.held.bound = config.MaxHeld
	for _, e := range s.endpoints() {
		if e.verb == verb {
			return e.handle, s
		}
	}
	t.Fatalf("there is no verb %s", verb)
	return nil, nil
}

package service

import (
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"
)

// arriving is a request that nobody waits for.
type arriving struct {
	micro.Request
	data string
}

func (a arriving) Data() []byte         { return []byte(a.data) }
func (arriving) Reply() string          { return "" }
func (arriving) Headers() micro.Headers { return nil }

// As many requests of each verb are held as docs/overload.md says: about one town, run or key, or about
// none, and then some more about another one.
func TestHowManyRequestsAreHeld(t *testing.T) {
	t.Parallel()
	const many, few = 4096, 128
	town := [2]string{`{"townId":"a"}`, `{"townId":"b"}`}
	run := [2]string{`{"runId":"a"}`, `{"runId":"b"}`}
	key := [2]string{`{"idempotencyKey":"a"}`, `{"idempotencyKey":"b"}`}
	for verb, want := range map[string]struct {
		about [2]string
		held  int
	}{
		"town.get":       {town, many},
		"town.list":      {[2]string{`{}`, town[0]}, few},
		"result.get":     {key, many},
		"run.get":        {run, many},
		"run.list":       {town, few},
		"run.events":     {run, many},
		"run.cancel":     {run, many},
		"control.pause":  {town, many},
		"control.resume": {town, many},
		"control.get":    {[2]string{`{}`, town[0]}, many},
	} {
		handle, s := unread(t, verb)
		for range want.held {
			handle(arriving{data: want.about[0]})
		}
		require.Equal(t, want.held, s.overload().Held, verb)
		handle(arriving{data: want.about[0]})
		require.Equal(t, int64(1), s.overload().Refused["town"], verb)
		handle(arriving{data: want.about[1]})
		require.Equal(t, want.held+1, s.overload().Held, "%s: another one is held", verb)
	}
}

// unread returns what takes the requests of a verb in a service that has no readers: what it takes stays.
func unread(t *testing.T, verb string) (func(micro.Request), *Service) {
	t.Helper()
	config := Config{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	config.Readers = -1
	s := &Service{config: config, changes: newPlaces(1, 1)}
	s.held.bound = config.MaxHeld
	for _, e := range s.endpoints() {
		if e.verb == verb {
			return e.handle, s
		}
	}
	t.Fatalf("there is no verb %s", verb)
	return nil, nil
}

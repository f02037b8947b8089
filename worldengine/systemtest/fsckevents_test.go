package systemtest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/wire"
)

// allEvents returns the messages of the stream of run events, in order.
func (w *checkedWorld) allEvents() []*jetstream.RawStreamMsg {
	w.t.Helper()
	events := w.events()
	state := events.CachedInfo().State
	var all []*jetstream.RawStreamMsg
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		msg, err := events.GetMsg(w.t.Context(), seq)
		require.NoError(w.t, err)
		all = append(all, msg)
	}
	return all
}

// remake makes the stream of run events anew of other messages.
func (w *checkedWorld) remake(all []*jetstream.RawStreamMsg) {
	w.t.Helper()
	config := w.events().CachedInfo().Config
	require.NoError(w.t, w.js.DeleteStream(w.t.Context(), config.Name))
	_, err := w.js.CreateStream(w.t.Context(), config)
	require.NoError(w.t, err)
	for _, msg := range all {
		w.publish(msg.Subject, msg.Header, msg.Data)
	}
}

func copied(msg *jetstream.RawStreamMsg) *jetstream.RawStreamMsg {
	other := *msg
	other.Header = map[string][]string{}
	for name, values := range msg.Header {
		other.Header[name] = slices.Clone(values)
	}
	return &other
}

// Every way in which the stream of run events can differ from the log, at a place in its middle.
// One world has them all, one after the other: a repair leaves it as sound as it was.
func TestFsckFindsDamagedEvents(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	type messages = []*jetstream.RawStreamMsg
	const at = 20 // the index of the event that is damaged
	sound := w.allEvents()
	for name, damage := range map[string]struct {
		do   func(messages) messages
		what []string // in the order of the log
		seq  uint64   // of the first finding
	}{
		"a missing event": {
			do:   func(all messages) messages { return slices.Delete(all, at, at+1) },
			what: []string{"the event is missing"},
		},
		"a missing run": {
			do:   func(all messages) messages { return slices.Delete(all, at, at+3) },
			what: []string{"the event is missing", "the event is missing", "the event is missing"},
		},
		"an event twice": {
			do:   func(all messages) messages { return slices.Insert(all, at, copied(all[at])) },
			what: []string{"the log derives no such event here"}, seq: at + 2,
		},
		"an event again at another place": {
			do:   func(all messages) messages { return slices.Insert(all, at, copied(all[at+30])) },
			what: []string{"the log derives no such event here"}, seq: at + 1,
		},
		"an event of nowhere": {
			do: func(all messages) messages {
				extra := copied(all[at])
				delete(extra.Header, "Log-Seq")
				return slices.Insert(all, at, extra)
			},
			what: []string{"the log derives no such event here"}, seq: at + 1,
		},
		"an event beyond the log": {
			do: func(all messages) messages {
				extra := copied(all[at])
				extra.Header["Log-Seq"] = []string{"99999"}
				return slices.Insert(all, at, extra)
			},
			what: []string{"the log derives no such event here"}, seq: at + 1,
		},
		"two events in another order": {
			do: func(all messages) messages {
				all[at], all[at+1] = all[at+1], all[at]
				return all
			},
			what: []string{"the log derives no such event here", "the event is missing"},
			seq:  at + 1,
		},
		"a changed body": {
			do: func(all messages) messages {
				all[at].Data = []byte(strings.Replace(string(all[at].Data), `"eventId":"`,
					`"eventId":"f`, 1))
				return all
			},
			what: []string{"the body is not the one that the log derives"}, seq: at + 1,
		},
		"a changed type": {
			do: func(all messages) messages {
				all[at].Header["Event-Type"] = []string{"RunPaused"}
				return all
			},
			what: []string{"the header Event-Type is not the one that the log derives"},
			seq:  at + 1,
		},
		"a changed subject": {
			do: func(all messages) messages {
				all[at].Subject = wire.EventSubject("main", "elsewhere", "run")
				return all
			},
			what: []string{"the subject is not the one that the log derives"}, seq: at + 1,
		},
		"a header too many": {
			do: func(all messages) messages {
				all[at].Header["Kind"] = []string{"events"}
				return all
			},
			what: []string{"the log derives no header Kind"}, seq: at + 1,
		},
		"a trace that the log does not have": {
			do: func(all messages) messages {
				all[at].Header["traceparent"] = []string{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
				return all
			},
			what: []string{"the log derives no header traceparent"}, seq: at + 1,
		},
		"no place": {
			do: func(all messages) messages {
				delete(all[at].Header, "Log-Part")
				return all
			},
			what: []string{"the headers do not name the event's place in the log"}, seq: at + 1,
		},
		"the last one twice": {
			do:   func(all messages) messages { return append(all, copied(all[len(all)-1])) },
			what: []string{"the log derives no such event here"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			all := make(messages, len(sound))
			for i, msg := range sound {
				all[i] = copied(msg)
			}
			w.remake(damage.do(all))
			report := w.fsck(fsck.Options{Repair: true, Patience: impatient.Patience})
			var what []string
			for _, found := range report.Findings {
				require.Equal(t, wire.EventStream("main"), found.Stream)
				what = append(what, found.What)
			}
			require.Equal(t, damage.what, what)
			if damage.seq != 0 {
				require.Equal(t, damage.seq, report.Findings[0].Sequence)
			} else if report.Findings[0].Sequence == 0 {
				require.NotZero(t, report.Findings[0].LogSequence)
				require.NotEmpty(t, report.Findings[0].Town)
			}
			require.True(t, report.Clean(), "%+v", report.Repair.After)
			require.True(t, report.Repair.EventsRebuilt)
			require.Zero(t, report.Repair.ReceiptsWritten)
		})
		w.t = t
	}
	w.again(w.executed)
	w.talk(w.state)
	w.clean()
}

// The last events are gone: there, too, the events are made again and not doubled.
func TestFsckFindsAnEventStreamThatLostItsEnd(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate()
	info, err := w.events().Info(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.events().DeleteMsg(t.Context(), info.State.LastSeq))
	found := only(t, w.fsck(impatient))
	require.Equal(t, "the stream ends before the log does", found.What)
	require.True(t, w.repaired().Repair.EventsRebuilt)
}

// What is rebuilt is the same to the byte: ids, places and times.
func TestFsckRebuildsTheSameEvents(t *testing.T) {
	w := newCheckedWorld(t, worldengine.Config{}).populate(strangeTowns...)
	before := w.allEvents()
	require.NoError(t, w.events().Purge(t.Context(), jetstream.WithPurgeSequence(5)))
	require.True(t, w.fsck(fsck.Options{Repair: true}).Clean())
	after := w.allEvents()
	require.Len(t, after, len(before))
	for i := range before {
		require.Equal(t, before[i].Subject, after[i].Subject)
		require.Equal(t, string(before[i].Data), string(after[i].Data))
		for _, name := range []string{"Event-Type", "Nats-Msg-Id", "Log-Seq", "Log-Part"} {
			require.Equal(t, before[i].Header.Get(name), after[i].Header.Get(name))
		}
	}
}

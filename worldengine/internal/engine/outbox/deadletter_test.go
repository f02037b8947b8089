package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/alerts/alertstest"
	"worldengine/worldengine/wire"
)

// Message n is at log sequence n+1 and has n%4 events: message 11 has three.
var (
	early  = logPosition{12, 0}
	middle = logPosition{12, 1}
	late   = logPosition{12, 2}
)

// writeLarge appends messages to the log of which some events exceed the limit.
func (w *world) writeLarge(from, to int, large ...logPosition) {
	w.t.Helper()
	for _, at := range large {
		w.large[at] = limit
	}
	w.write(from, to)
}

// An event that the stream has refused Attempts times becomes a dead letter, at any place. The stream
// has all others, in order and once.
func TestDeadLetter_Refused(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string][]logPosition{
		"the first event":            {early},
		"one in the middle":          {middle},
		"the last event":             {late},
		"all of a log message":       {early, middle, late},
		"the only event":             {{10, 0}},
		"two in a row and a third":   {{11, 1}, early, {16, 1}},
		"the first of the log":       {{2, 0}},
		"the last of the log":        {{20, 2}},
		"nearly all events at first": {{2, 0}, {3, 0}, {3, 1}, {4, 0}, {4, 1}, {4, 2}, {6, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.writeLarge(0, 20, refused...)
			s, _ := w.run(limited)
			w.wait(s, 20)
			w.requireImage(20, refused...)
			require.ElementsMatch(t, refused, w.letters())
			require.Len(t, w.alerts(runevents.EventBusDeliveryFailed), len(refused), "each once")
			require.GreaterOrEqual(t, w.failures(), 2*len(refused), "three attempts each")
		})
	}
}

// A dead letter has the event's headers and body, and the reason; the alert names it.
func TestDeadLetter_Contents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.writeLarge(0, 12, middle)
	s, _ := w.run(limited)
	w.wait(s, 12)
	letters := alertstest.Letters(t, w.js)
	require.Len(t, letters, 1)
	letter := letters[0]
	require.Equal(t, "deadletter.v1.main.WORLD_main_RUNEVENTS.12.1", letter.Subject)
	require.Equal(t, "runevents.v2.main.Town%201.run-1",
		letter.Header.Get(layout.OriginalSubjectHeader))
	require.Equal(t, string(runevents.StepStarted), letter.Header.Get(wire.EventTypeHeader))
	require.Greater(t, len(letter.Data), limit)
	require.Contains(t, letter.Header.Get(layout.DeadLetterReasonHeader),
		"message size exceeds maximum allowed")
	raised := w.alerts(runevents.EventBusDeliveryFailed)
	require.Len(t, raised, 1)
	require.Equal(t, []string{"run-1", eventID(11, 1), letter.Subject},
		[]string{raised[0].RunID, raised[0].EventID, raised[0].DeadLetter})
}

// A letter that is too large for its stream is kept without its body. If its stream is missing, the
// next try keeps it. However often it is kept, it has one alert.
func TestDeadLetter_Keep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, err := New(w.config())
	require.NoError(t, err)
	size := int(w.nc.MaxPayload()) + 1
	l := deadLetter{at: middle, reason: errors.New("much too large"), msg: &nats.Msg{
		Subject: "runevents.v2.main.t.run", Data: make([]byte, size),
		Header: nats.Header{wire.EventTypeHeader: {"Told"}, jetstream.ExpectedLastSeqHeader: {"7"}},
	}}
	require.Error(t, s.storeDeadLetter(t.Context(), &l), "the stream is missing")
	require.Empty(t, w.raised)
	for range 2 {
		require.NoError(t, s.storeDeadLetter(t.Context(), &l))
	}
	letters := alertstest.Letters(t, w.js)
	require.Len(t, letters, 1)
	require.Empty(t, letters[0].Data)
	header := map[string]string{}
	for name := range letters[0].Header {
		if !strings.HasPrefix(name, layout.ServerHeaderPrefix) {
			header[name] = letters[0].Header.Get(name)
		}
	}
	require.Equal(t, map[string]string{
		"Log-Seq": "12", "Log-Part": "1", "Dead-Letter-Reason": "much too large",
		"Original-Subject": l.msg.Subject, "Original-Size": strconv.Itoa(size),
	}, header)
	require.Len(t, w.raised, 2)
	require.Equal(t, w.raised[0].ID(), w.raised[1].ID())
	require.Equal(t, letters[0].Subject, w.raised[0].DeadLetter)
	require.Equal(t, runevents.P1, w.raised[0].Severity)
	require.Equal(t, "runevents.v2.main.t.run cannot be copied to WORLD_main_RUNEVENTS: event 1 of "+
		"log sequence 12: much too large", w.raised[0].Message)
}

// An unreadable message of the log, or one without headers, is at once a dead letter with its
// bytes; the log goes on.
func TestDeadLetter_Unreadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(0, 3)
	w.append(damaged())
	bare := damaged()
	bare.Header = nil
	w.append(bare)
	w.write(5, 8)
	s, _ := w.run()
	w.wait(s, 8)
	w.requireEvents(append(w.image(0, 3), w.image(5, 8)...))
	require.Equal(t, []logPosition{{4, 0}, {5, 0}}, w.letters())
	letters := alertstest.Letters(t, w.js)
	require.Equal(t, "{damaged", string(letters[0].Data))
	require.Equal(t, "world.main.refused.t", letters[0].Header.Get(layout.OriginalSubjectHeader))
	require.Contains(t, letters[0].Header.Get(layout.DeadLetterReasonHeader), "not a commit record")
	require.Contains(t, letters[1].Header.Get(layout.DeadLetterReasonHeader), "no headers")
	raised := w.alerts(runevents.EventBusDeliveryFailed)
	require.Len(t, raised, 2)
	require.Equal(t, "EVENT_BUS_DELIVERY_FAILED|run|"+letters[0].Subject, raised[0].ID())
}

// The relay goes on only when the letter is kept.
func TestDeadLetter_NotKept(t *testing.T) {
	t.Parallel()
	for name, unreadable := range map[string]bool{"refused": false, "unreadable": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			full := DeadLetterConfig("main", 1)
			full.MaxBytes, full.Discard = 1, jetstream.DiscardNew
			_, err := w.js.CreateStream(t.Context(), full)
			require.NoError(t, err)
			if unreadable {
				w.append(damaged())
				w.write(1, 12)
			} else {
				w.writeLarge(0, 12, middle)
			}
			s, _ := w.run(limited)
			w.eventually(func() bool { return w.failures() >= 6 }, "it is tried again")
			require.Less(t, s.Position(), uint64(12))
			require.Empty(t, alertstest.Letters(t, w.js))
			_, err = w.js.UpdateStream(t.Context(), DeadLetterConfig("main", 1))
			require.NoError(t, err)
			w.wait(s, 12)
			require.Len(t, w.letters(), 1)
		})
	}
}

// A letter at the log's end leaves no trace in the stream, so the next relay gives the event up again.
// There is one letter, and the next events follow.
func TestDeadLetter_Restart(t *testing.T) {
	t.Parallel()
	for _, last := range []logPosition{early, middle, late} {
		t.Run(fmt.Sprint("event ", last.part), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.writeLarge(0, 12, last)
			s, stop := w.run(limited)
			w.wait(s, 12)
			stop()
			s, _ = w.run(limited)
			w.wait(s, 12)
			w.write(12, 20)
			w.wait(s, 20)
			w.requireImage(20, last)
			require.Equal(t, []logPosition{last}, w.letters())
		})
	}
}

// Racing relays give up the same events, and lose and double none.
func TestDeadLetter_Race(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rivals, messages = 3, 300
	refused := []logPosition{early, middle, {100, 1}, {104, 2}, {300, 2}}
	var sinks []*Relay
	for range rivals {
		s, _ := w.run(limited)
		sinks = append(sinks, s)
	}
	w.writeLarge(0, messages, refused...)
	for _, s := range sinks {
		w.wait(s, messages)
	}
	w.requireImage(messages, refused...)
	require.ElementsMatch(t, refused, w.letters())
}

// A stream that is full, or has other subjects, is not the event's fault: the relay retries for as
// long as it takes, and gives nothing up.
func TestDeadLetter_TroubleOfTheStream(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*jetstream.StreamConfig){
		"full":                func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1, 1 },
		"listening elsewhere": func(c *jetstream.StreamConfig) { c.Subjects = []string{"x.>"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(0, 12)
			s, _ := w.run(func(s *Relay) {
				s.config.Attempts = 1
				trouble(&s.stream)
			})
			w.eventually(func() bool { return w.failures() >= 3 }, "it is tried again")
			_, err := w.js.UpdateStream(t.Context(), StreamConfig("main", time.Hour, 0, 1))
			require.NoError(t, err)
			w.wait(s, 12)
			w.requireImage(12)
			_, err = w.js.Stream(t.Context(), layout.DeadLetterStream("main"))
			require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
		})
	}
}

// Once the stream accepts them, Replay publishes the letters' events in their places, beside a running
// relay. A letter stays if its event is refused again, or if its record cannot be read.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.large[late] = 2 * limit
	w.writeLarge(0, 20, middle)
	w.append(damaged())
	w.large[logPosition{24, 1}] = limit // the message at 24 is number 23
	w.write(21, 30)
	s, stop := w.run(limited)
	w.wait(s, 30)
	stop()
	given := []logPosition{middle, {12, 2}, {21, 0}, {24, 1}}
	require.ElementsMatch(t, given, w.letters())

	config := w.stream().CachedInfo().Config
	config.MaxMsgSize = 2 * limit // middle and 24.1 fit, late does not
	_, err := w.js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	w.run(func(s *Relay) { s.stream.MaxMsgSize = config.MaxMsgSize })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	letter := func(seq, part string) string {
		return layout.DeadLetterSubject("main", wire.EventStream("main"), seq, part)
	}
	asked := []string{letter("12", "1"), letter("12", "2"), letter("21", "0"), letter("7", "7")}
	replayed, err := Replay(ctx, w.config(), asked)
	require.NoError(t, err)
	require.Equal(t, asked[:1], replayed)
	w.requireEvents(append(w.image(0, 20, late), w.image(21, 30)...))
	var left []string
	for _, l := range w.kept(layout.DeadLetterStream("main")) {
		left = append(left, l.Subject)
	}
	require.Equal(t, config.MaxMsgSize, w.stream().CachedInfo().Config.MaxMsgSize)
	require.ElementsMatch(t,
		[]string{letter("12", "2"), letter("21", "0"), letter("24", "1")}, left)
}

// Without the stream there is nothing to replay into, and none is made.
func TestReplay_NoStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := Replay(t.Context(), w.config(), nil)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	require.ErrorContains(t, err, "--bus jetstream")
	_, err = w.js.Stream(t.Context(), wire.EventStream("main"))
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

package follow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/wire"
)

// letters keeps what followers give up, and how often.
type letters struct {
	mu   sync.Mutex
	all  map[place]DeadLetter
	took int
	fail int // so often it fails first
}

func (l *letters) take(_ context.Context, letter DeadLetter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail > 0 {
		l.fail--
		return errors.New("no room for letters")
	}
	if l.all == nil {
		l.all = map[place]DeadLetter{}
	}
	l.took++
	l.all[place{letter.LogSeq, letter.LogPart}] = letter
	return nil
}

func (l *letters) places() (all []place, took int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := range l.all {
		all = append(all, at)
	}
	return all, l.took
}

// limit is the largest message that a limited world's derived stream takes.
const limit = 1000

func newLimitedWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	config := w.derived.CachedInfo().Config
	config.MaxMsgSize = limit
	var err error
	w.derived, err = w.js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	return w
}

// heavy is a derive whose messages at the given places, log sequences here, are of the given size.
func heavy(size int, places ...place) func(*Config) {
	return func(c *Config) {
		c.Attempts = 3
		c.Derive = func(msg jetstream.Msg) ([]Message, error) {
			derived, err := derive(msg)
			for _, at := range places {
				if string(msg.Data()) == strconv.FormatUint(at.logSeq-1, 10) {
					derived[at.part].Data = make([]byte, size)
				}
			}
			return derived, err
		}
	}
}

func (l *letters) to(c *Config) { c.GiveUp = l.take }

// requireImageBut is requireImage with some messages left out.
func (w *world) requireImageBut(messages int, without ...place) {
	w.t.Helper()
	left := map[place]bool{}
	for _, at := range without {
		left[at] = true
	}
	seq := uint64(0)
	for n := range messages {
		for part := range parts(n) {
			at := place{uint64(n + 1), part}
			if left[at] {
				continue
			}
			seq++
			msg, err := w.derived.GetMsg(w.t.Context(), seq)
			require.NoError(w.t, err, "%v", at)
			require.Equal(w.t, fmt.Sprintf("%d/%d", n, part), string(msg.Data), "sequence %d", seq)
		}
	}
	info, err := w.derived.Info(w.t.Context())
	require.NoError(w.t, err)
	require.Equal(w.t, seq, info.State.LastSeq, "nothing twice")
}

// Message n is at log sequence n+1 and has n%4 parts: those of 12 are 0, 1 and 2.
var (
	early  = place{12, 0}
	middle = place{12, 1}
	late   = place{12, 2}
)

// What the derived stream refuses is tried Attempts times and then given up, wherever it stands;
// everything else is there, in order and once.
func TestGivesUpWhatIsRefused(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string][]place{
		"the first part":             {early},
		"one in the middle":          {middle},
		"the last part":              {late},
		"all of a log message":       {early, middle, late},
		"the only part":              {{10, 0}},
		"two in a row and a third":   {{11, 1}, early, {16, 1}},
		"the first of the log":       {{2, 0}},
		"the last of the log":        {{20, 2}},
		"nearly all that is derived": {{2, 0}, {3, 0}, {3, 1}, {4, 0}, {4, 1}, {4, 2}, {6, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, given := newLimitedWorld(t), &letters{}
			w.write(0, 20)
			f, stop := w.run(heavy(limit+1, refused...), given.to)
			w.wait(f, 20)
			w.requireImageBut(20, refused...)
			all, took := given.places()
			require.ElementsMatch(t, refused, all)
			require.Equal(t, len(refused), took, "each once")
			stop()
			require.GreaterOrEqual(t, f.failures.Load(), int64(2*len(refused)),
				"three attempts each")
		})
	}
}

func TestALetterSaysWhatAndWhy(t *testing.T) {
	t.Parallel()
	w, given := newLimitedWorld(t), &letters{}
	w.write(0, 12)
	f, _ := w.run(heavy(limit+1, middle), given.to)
	w.wait(f, 12)
	letter := given.all[middle]
	require.Equal(t, "test", letter.Stream)
	require.Equal(t, "derived.11", letter.Subject)
	require.Equal(t, "12", letter.Header.Get(wire.LogSeqHeader))
	require.Len(t, letter.Data, limit+1)
	require.False(t, letter.Unreadable)
	require.ErrorContains(t, letter.Reason, "message size exceeds maximum allowed")
}

// A message that the client does not even send, because no server takes one so large, is one too.
func TestGivesUpWhatCannotBeSent(t *testing.T) {
	t.Parallel()
	for _, at := range []place{early, middle, late} {
		w, given := newWorld(t), &letters{}
		w.write(0, 20)
		f, _ := w.run(heavy(int(w.js.Conn().MaxPayload())+1, at), given.to)
		w.wait(f, 20)
		w.requireImageBut(20, at)
		require.ErrorIs(t, given.all[at].Reason, nats.ErrMaxPayload)
	}
}

// A message of the log that cannot be read is given up at once, with its bytes.
func TestGivesUpWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	w, given := newWorld(t), &letters{}
	w.write(0, 3)
	_, err := w.js.Publish(t.Context(), "log.a", []byte("damaged"))
	require.NoError(t, err)
	w.write(4, 8)
	f, _ := w.run(given.to)
	w.wait(f, 8)
	info, err := w.derived.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(0+1+2+0+1+2+3), info.State.LastSeq)
	all, _ := given.places()
	require.Equal(t, []place{{4, 0}}, all)
	letter := given.all[place{4, 0}]
	require.True(t, letter.Unreadable)
	require.Equal(t, []string{"log.a", "damaged"}, []string{letter.Subject, string(letter.Data)})
	require.ErrorContains(t, letter.Reason, "not a number")
}

// The follower goes on only when the letter is kept.
func TestALetterThatIsNotKeptIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, unreadable := range []bool{false, true} {
		w, given := newLimitedWorld(t), &letters{fail: 3}
		if unreadable {
			_, err := w.js.Publish(t.Context(), "log.a", []byte("damaged"))
			require.NoError(t, err)
		}
		w.write(0, 1)
		w.write(11, 12)
		f, _ := w.run(given.to, func(c *Config) {
			c.Attempts = 2
			c.Derive = func(msg jetstream.Msg) ([]Message, error) {
				derived, err := derive(msg)
				if len(derived) > 0 && !unreadable {
					derived[0].Data = make([]byte, limit+1)
				}
				return derived, err
			}
		})
		w.wait(f, 2)
		_, took := given.places()
		require.Equal(t, 1, took)
		require.GreaterOrEqual(t, f.failures.Load(), int64(3))
	}
}

// What was given up at the end of the log leaves no trace in the derived stream. So a follower that
// reads the position there comes to it again: the same follower goes on at once, the next one gives
// the same up again; and then the log goes on.
func TestRestartsBehindWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	for _, last := range []place{early, middle, late} {
		t.Run(fmt.Sprint("part ", last.part), func(t *testing.T) {
			t.Parallel()
			w, given := newLimitedWorld(t), &letters{}
			w.write(0, 12)
			f, stop := w.run(heavy(limit+1, last), given.to)
			for range 3 {
				w.wait(f, 12)
				f.Restart(12)
			}
			w.wait(f, 12)
			_, took := given.places()
			require.Equal(t, 1, took)
			stop()
			f, _ = w.run(heavy(limit+1, last), given.to)
			w.wait(f, 12)
			w.write(12, 20)
			w.wait(f, 20)
			w.requireImageBut(20, last)
			all, _ := given.places()
			require.Equal(t, []place{last}, all)
		})
	}
}

// A follower that is killed anywhere around what is given up is gone on from there.
func TestResumesAroundWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	for cut := range 8 {
		t.Run(fmt.Sprint("cut after ", cut), func(t *testing.T) {
			t.Parallel()
			w, given := newLimitedWorld(t), &letters{}
			w.write(0, 13)
			refused := []place{{11, 0}, middle}
			left := cut
			for n := 9; n < 12; n++ { // what a follower had written when it was killed
				for part := range parts(n) {
					at := place{uint64(n + 1), part}
					if at == refused[0] || at == middle || left == 0 {
						continue
					}
					left--
					w.publishDerived(n, part)
				}
			}
			f, _ := w.run(heavy(limit+1, refused...), given.to)
			w.wait(f, 13)
			w.requireTail(9, 12, refused...)
		})
	}
}

// publishDerived writes what a follower writes, as far as another follower looks at it.
func (w *world) publishDerived(n, part int) {
	w.t.Helper()
	_, err := w.js.PublishMsg(w.t.Context(), &nats.Msg{
		Subject: fmt.Sprintf("derived.%d", n), Data: fmt.Appendf(nil, "%d/%d", n, part),
		Header: nats.Header{
			wire.LogSeqHeader: {strconv.Itoa(n + 1)}, wire.LogPartHeader: {strconv.Itoa(part)},
		},
	})
	require.NoError(w.t, err)
}

// requireTail checks that the derived stream ends with what messages from..to-1 say, but for some.
func (w *world) requireTail(from, to int, without ...place) {
	w.t.Helper()
	var want, got []string
	for n := from; n < to; n++ {
		for part := range parts(n) {
			at := place{uint64(n + 1), part}
			if at != without[0] && at != without[1] {
				want = append(want, fmt.Sprintf("%d/%d", n, part))
			}
		}
	}
	info, err := w.derived.Info(w.t.Context())
	require.NoError(w.t, err)
	for seq := info.State.LastSeq - uint64(len(want)) + 1; seq <= info.State.LastSeq; seq++ {
		msg, err := w.derived.GetMsg(w.t.Context(), seq)
		require.NoError(w.t, err)
		got = append(got, string(msg.Data))
	}
	require.Equal(w.t, want, got)
}

// Racing followers give up the same, and lose and double nothing.
func TestFollowersRaceAroundWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	w, given := newLimitedWorld(t), &letters{}
	const rivals, messages = 4, 300
	refused := []place{early, middle, {100, 1}, {104, 2}, {300, 2}}
	var followers []*Follower
	for range rivals {
		f, _ := w.run(heavy(limit+1, refused...), given.to)
		followers = append(followers, f)
	}
	w.write(0, messages)
	for _, f := range followers {
		w.wait(f, messages)
	}
	w.requireImageBut(messages, refused...)
	all, _ := given.places()
	require.ElementsMatch(t, refused, all)
}

// A derived stream that is full, gone, or not there to answer, says nothing of the message: it is
// tried for as long as it takes, and nothing is given up.
func TestTroubleOfTheStreamIsNoRefusal(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*world) (mend func()){
		"full": func(w *world) func() {
			whole := w.derived.CachedInfo().Config
			full := whole
			full.MaxMsgs, full.Discard = 1, jetstream.DiscardNew
			w.update(full)
			return func() { w.update(whole) }
		},
		"listening elsewhere": func(w *world) func() {
			whole := w.derived.CachedInfo().Config
			away := whole
			away.Subjects = []string{"elsewhere.>"}
			w.update(away)
			return func() { w.update(whole) }
		},
		"gone": func(w *world) func() {
			require.NoError(w.t, w.js.DeleteStream(w.t.Context(), "DERIVED"))
			return w.newDerived
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, given := newWorld(t), &letters{}
			w.write(0, 12)
			mend := trouble(w)
			f, _ := w.run(given.to, func(c *Config) { c.Attempts = 1 })
			require.Eventually(t, func() bool {
				return f.failures.Load() >= 3
			}, 30*time.Second, 5*time.Millisecond)
			mend()
			w.wait(f, 12)
			w.requireImage(12)
			_, took := given.places()
			require.Zero(t, took)
		})
	}
}

func (w *world) update(config jetstream.StreamConfig) {
	w.t.Helper()
	_, err := w.js.UpdateStream(w.t.Context(), config)
	require.NoError(w.t, err)
}

func TestIsRefusal(t *testing.T) {
	t.Parallel()
	for code, want := range map[jetstream.ErrorCode]bool{
		10054: true,  // message size exceeds maximum
		10097: true,  // header size exceeds maximum
		10165: true,  // invalid time to live
		10166: true,  // the stream has no times to live
		10002: false, // resources of the account
		10008: false, // temporarily unavailable
		10023: false, // insufficient resources
		10047: false, // insufficient storage
		10059: false, // no such stream
		10060: false, // another stream
		10070: false, // a race
		10071: false, // a race
		10077: false, // store failed: the disk is full
		10109: false, // the stream is sealed, for all
		10118: false, // the stream is offline
		10158: false, // the message's id is in process
		10164: false, // a race
		10167: false, // too many requests
	} {
		err := fmt.Errorf("wrapped: %w", &jetstream.APIError{ErrorCode: code})
		require.Equal(t, want, IsRefusal(err), "%d", code)
	}
	for _, err := range []error{nats.ErrMaxPayload, nats.ErrBadSubject} {
		require.True(t, IsRefusal(fmt.Errorf("wrapped: %w", err)))
	}
	for _, err := range []error{
		nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrDisconnected,
		jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout,
		jetstream.ErrTooManyStalledMsgs,
		jetstream.ErrInvalidJSAck, context.DeadlineExceeded, errRace,
	} {
		require.False(t, IsRefusal(err), "%v", err)
	}
}

// A message in the middle of a delivery of many log messages is refused and given up like any
// other.
func TestGivesUpWhatIsRefusedAmongMany(t *testing.T) {
	t.Parallel()
	w, given := newLimitedWorld(t), &letters{}
	var sent atomic.Int64
	f := w.atHand(40, &sent, heavy(limit+1, middle), given.to)
	w.wait(f, 40)
	w.requireImageBut(40, middle)
	all, took := given.places()
	require.Equal(t, []place{middle}, all)
	require.Equal(t, 1, took)
}

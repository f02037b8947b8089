// Package systemtest_test tests fsck, readers and repairs on a whole server's world: tampered,
// damaged, cut off, and while it is served. checkedWorld makes the worlds.
package systemtest_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) {
	natstest.Main(m, 16)
}

// checkedWorld is a world on a real server, for fsck.
type checkedWorld struct {
	*servertest.World
	t        *testing.T
	executed *handoff.Handoff // of town-1
}

// newCheckedWorld starts a server for a parallel test.
func newCheckedWorld(t *testing.T, config engine.Config, change ...servertest.Change) *checkedWorld {
	t.Helper()
	t.Parallel()
	return &checkedWorld{t: t, World: newServer(t, config, change...)}
}

// newServer starts a server on which a handoff that waits for the end of a pause does not time out.
func newServer(t *testing.T, config engine.Config, change ...servertest.Change) *servertest.World {
	t.Helper()
	config.PauseTimeout = cmp.Or(config.PauseTimeout, time.Hour)
	return servertest.Start(t, append([]servertest.Change{servertest.Engine(config)}, change...)...)
}

// strangeTowns are ids that need encoding in a subject, or are too long for one or for a header.
var strangeTowns = []string{
	"town-1", "Fort Ашера № 2", " ", "a.b *>", "=unknown", "é", strings.Repeat("long ", 40),
	strings.Repeat("far too long ", 500),
}

// populate makes towns, the first three strange ones by default, and has handoffs of every status
// judged, several in a row.
func (w *checkedWorld) populate(towns ...string) *checkedWorld {
	w.t.Helper()
	if len(towns) == 0 {
		towns = strangeTowns[:3]
	}
	for _, id := range towns {
		state := w.found(id)
		accepted := w.send(towntest.Proposal(state, handoff.AdvanceProject, "wall"), handoff.Executed)
		w.send(towntest.Proposal(state, handoff.AdvanceProject, "wall"), handoff.Duplicate)
		w.send(towntest.Proposal(state, handoff.TalkToTownsfolk, "casual"), handoff.Stale)
		next := w.nextState(state, accepted)
		w.send(towntest.Proposal(next, handoff.AdvanceProject, "gate"), handoff.Failed)
		w.send(towntest.Proposal(next, handoff.AdvanceProject, "wall",
			handoff.Precondition{Kind: handoff.ProjectExists, TargetID: "moat"}), handoff.Rejected)
		calm := *next.Snapshot
		calm.Pressure.Threat = 0
		calmer := town.NewState(&calm)
		w.put(calmer, next.Hash)
		h := w.send(towntest.Proposal(calmer, handoff.TalkToTownsfolk, "morale-boost"), handoff.Executed)
		if id == "town-1" {
			w.executed = h
		}
	}
	w.send(towntest.Proposal(towntest.Threatened(func(s *town.Snapshot) { s.TownID = "nowhere" }),
		handoff.AdvanceProject, "wall"), handoff.Rejected)
	for _, event := range []runevents.EventType{runevents.RunStarted, "Noted", runevents.RunPaused} {
		w.append("town-1", "planner-1", runlog.Event{EventType: event})
	}
	w.clean()
	return w
}

func (w *checkedWorld) put(state town.State, expected string) {
	w.t.Helper()
	_, err := w.Engine().Changes().Put(w.t.Context(), state, expected)
	require.NoError(w.t, err)
}

// idle waits until a handoff that is sent finds its town free.
func (w *checkedWorld) idle() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		// An application that ends is queued before it is not counted any more.
		return w.Engine().Status().Stats().Applying == 0 && w.Engine().Status().Stats().Unfinished == 0
	}, time.Minute, time.Millisecond)
}

func (w *checkedWorld) send(p handoff.Proposal, want handoff.Status) *handoff.Handoff {
	w.t.Helper()
	h, err := handoff.New(p)
	require.NoError(w.t, err)
	require.Equal(w.t, want, w.execute(h))
	return h
}

// again sends a handoff that was accepted before.
func (w *checkedWorld) again(h *handoff.Handoff) {
	w.t.Helper()
	require.Equal(w.t, handoff.Duplicate, w.execute(h))
}

// submit has an engine judge a handoff, and returns the answer.
func submit(
	ctx context.Context, e *engine.Engine, h *handoff.Handoff,
) (engine.Answer, error) {
	reply := queue.NewFuture[engine.Answer]()
	if err := e.Handoffs().Submit(h, nil, trace.Context{}, reply); err != nil {
		return engine.Answer{}, err
	}
	return reply.Wait(ctx)
}

// execute sends a handoff as clients do until it is answered: a pending handoff may be in hand for
// another moment, and the index may be behind. It retries no other refusal, and these only for
// settleTimeout.
func (w *checkedWorld) execute(h *handoff.Handoff) handoff.Status {
	w.t.Helper()
	const settleTimeout = 30 * time.Second
	answer, err := submit(w.t.Context(), w.Engine(), h)
	for until := time.Now().Add(settleTimeout); time.Now().Before(until) &&
		(errors.Is(err, engine.ErrInProgress) ||
			errors.Is(err, engine.ErrIndexBehind)); {
		// as a client does
		time.Sleep(10 * time.Millisecond)
		answer, err = submit(w.t.Context(), w.Engine(), h)
	}
	require.NoError(w.t, err)
	return answer.Result.Status
}

func (w *checkedWorld) fsck(options fsck.Options) *fsck.Report {
	w.t.Helper()
	options.Logger = slog.New(slog.DiscardHandler)
	report, err := fsck.Run(w.t.Context(), w.Operator(), wire.DefaultWorld, options)
	require.NoError(w.t, err)
	return report
}

// indexDir is the directory of the index of the world's server.
func (w *checkedWorld) indexDir() string {
	return filepath.Join(w.Config.Embedded.Data, "index", wire.DefaultWorld)
}

func (w *checkedWorld) clean() *fsck.Report {
	w.t.Helper()
	report := w.fsck(fsck.Options{})
	require.Empty(w.t, report.Findings)
	require.True(w.t, report.Clean())
	indextest.RequireRebuilt(w.t, w.Operator(), wire.DefaultWorld, w.indexDir())
	return report
}

func (w *checkedWorld) log() jetstream.Stream { return w.Stream(layout.LogStream("main")) }

// logEnd is the sequence of the log's last message.
func (w *checkedWorld) logEnd() uint64 {
	w.t.Helper()
	info, err := w.log().Info(w.t.Context())
	require.NoError(w.t, err)
	return info.State.LastSeq
}

// placeOf is the log sequence of an accepted handoff.
func (w *checkedWorld) placeOf(h *handoff.Handoff) uint64 {
	w.t.Helper()
	subject := layout.LogSubject("main", wire.TownToken(h.Proposal.TownID))
	for seq := uint64(1); ; seq++ {
		msg, err := w.log().GetMsg(w.t.Context(), seq, jetstream.WithGetMsgSubject(subject))
		require.NoError(w.t, err)
		if seq = msg.Sequence; msg.Header.Get(layout.KeyHeader) == h.IdempotencyKey {
			return seq
		}
	}
}

// indexed waits until the index has every record: it still knows a record that the log loses after that.
func (w *checkedWorld) indexed() {
	w.t.Helper()
	end := w.logEnd()
	require.Eventually(w.t, func() bool {
		return w.Engine().Status().Stats().Indexed >= end
	}, time.Minute, time.Millisecond)
}

// followed waits until the bus has the log's run events up to its end.
func (w *checkedWorld) followed() {
	w.t.Helper()
	end := w.logEnd()
	require.Eventually(w.t, func() bool {
		return *w.Engine().Status().Stats().BusPublished >= end
	}, time.Minute, 20*time.Millisecond)
}

func copied(msg *jetstream.RawStreamMsg) *jetstream.RawStreamMsg {
	other := *msg
	other.Header = map[string][]string{}
	for name, values := range msg.Header {
		other.Header[name] = slices.Clone(values)
	}
	return &other
}

// last returns the last message of a subject.
func (w *checkedWorld) last(stream jetstream.Stream, subject string) *jetstream.RawStreamMsg {
	w.t.Helper()
	msg, err := stream.GetLastMsgForSubject(w.t.Context(), subject)
	require.NoError(w.t, err)
	return msg
}

// publish stores a message and returns its sequence. It omits the server's headers about another
// message, and that one's guards.
func (w *checkedWorld) publish(subject string, header nats.Header, data []byte) uint64 {
	w.t.Helper()
	own := nats.Header{}
	for name, values := range header {
		if !strings.HasPrefix(name, "Nats-") || name == jetstream.MsgIDHeader {
			own[name] = values
		}
	}
	var seq uint64
	subject = logtest.AppendSubject(w.t, w.Streams(), subject)
	publish := func() bool {
		ack, err := w.Streams().PublishMsg(w.t.Context(),
			&nats.Msg{Subject: subject, Header: own, Data: data})
		if err != nil || ack.Duplicate {
			return false
		}
		seq = ack.Sequence
		return true
	}
	if !publish() { // a message id is refused for a moment
		require.Eventually(w.t, publish, 30*time.Second, 20*time.Millisecond)
	}
	return seq
}

// nextState returns the state that the rules make of an executed handoff.
func (w *checkedWorld) nextState(at town.State, h *handoff.Handoff) town.State {
	w.t.Helper()
	next, reason := town.DefaultRules().Apply(at.Snapshot, &h.Proposal)
	require.Empty(w.t, reason)
	return next
}

// talked has n more handoffs of a town executed, and returns them with the state behind them.
func (w *checkedWorld) talked(at town.State, n int) (all []*handoff.Handoff, now town.State) {
	w.t.Helper()
	for range n {
		h := w.send(towntest.Proposal(at, handoff.TalkToTownsfolk, "casual"), handoff.Executed)
		all, at = append(all, h), w.nextState(at, h)
	}
	return all, at
}

// talk has one more handoff of a town executed, which is a duplicate then.
func (w *checkedWorld) talk(at town.State) town.State {
	w.t.Helper()
	done, next := w.talked(at, 1)
	w.again(done[0])
	return next
}

func TestFsck_SoundWorld(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{}).populate(strangeTowns...)
	report := w.clean()
	towns := int64(len(strangeTowns))
	require.Equal(t, fsck.Counts{
		Messages: 8*towns + 5, Settings: 1, Towns: towns, Puts: 2 * towns, Accepted: 3 * towns,
		Refused: 3*towns + 1, Appended: 3,
	}, report.Counts)
}

func TestFsck_NoWorld(t *testing.T) {
	w := newCheckedWorld(t, engine.Config{})
	require.Equal(t, fsck.Counts{Messages: 1, Settings: 1}, w.clean().Counts, "of an empty one")
	_, err := fsck.Run(t.Context(), w.Operator(), "elsewhere", fsck.Options{})
	require.ErrorIs(t, err, commitlog.ErrNoWorld)
	_, err = fsck.Run(t.Context(), w.Operator(), "a.b", fsck.Options{})
	require.ErrorContains(t, err, "a world's name")
	w.Operator().Close()
	_, err = fsck.Run(t.Context(), w.Operator(), "main", fsck.Options{})
	require.ErrorIs(t, err, commitlog.ErrLogUnavailable)
}

package service

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// The pause grows with the number of waiting requests, within its bounds.
func TestPauseFor(t *testing.T) {
	t.Parallel()
	for load, want := range map[slotLoad]int{
		{}: 50, {key: 3, all: 3}: 50, {key: 30, all: 30}: 100, {key: 258, all: 258}: 550,
		{key: 2, all: 2048}: 550, {key: 2, all: 1 << 20}: 1000, {key: 1 << 20}: 1000,
	} {
		require.Equal(t, want, retryAfter(load), "%+v", load)
	}
}

// Bytes never exceed their bound, and a request that is released twice counts once.
func TestHeld_Bound(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{MaxHeld: 1000})
	m, slots := &w.service.memory, w.service.slots(1<<20, 1<<21)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for n := range int64(2000) {
				if !m.reserve(&w.usage, n%400, true) {
					continue
				}
				if bytes := m.read(&w.usage).bytes; bytes > m.bound {
					t.Errorf("%d bytes are held", bytes)
				}
				of, _, why := slots.acquire("main", []byte("t"))
				if why != granted {
					t.Error("no slot is free")
				}
				in := &incoming{slots: slots, slotOwner: of, bytes: n % 400}
				w.release(in)
				w.release(in)
			}
		})
	}
	clients.Wait()
	require.Zero(t, w.Overload().HeldBytes)
	require.Zero(t, w.Overload().Held)
	require.Zero(t, slots.used)
	require.True(t, m.reserve(&w.usage, 1000, true))
	require.False(t, m.reserve(&w.usage, 1, true))
	require.True(t, m.reserve(&w.usage, 100, false), "a read has room still")
}

// With several worlds, a world holds at most as many bytes as are free, and a world without any may
// hold all the free ones.
func TestMemoryBudget_Worlds(t *testing.T) {
	t.Parallel()
	a := newWorld(Config{MaxHeld: 1000})
	b := openAnother(a.service, "b")
	require.True(t, a.service.memory.reserve(&a.usage, 500, true))
	require.False(t, a.service.memory.reserve(&a.usage, 1, true))
	require.True(t, b.service.memory.reserve(&b.usage, 200, true))
	require.False(t, b.service.memory.reserve(&b.usage, 100, true), "300 would be more than 200 free")
	c := openAnother(a.service, "c")
	require.False(t, c.service.memory.reserve(&c.usage, 301, true))
	require.True(t, c.service.memory.reserve(&c.usage, 300, true), "the first of a world")
	require.Equal(t, int64(200), b.Overload().HeldBytes)
}

// If the worlds of a server fill all slots together, a request gets a 429 that says so.
func TestShed_ServerFull(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t)
	a := newWorld(Config{})
	b := openAnother(a.service, "b")
	replies, err := nc.SubscribeSync(nc.NewInbox())
	require.NoError(t, err)
	e := &endpoint{slotKey: townMember, queued: true, slots: a.service.slots(1, 1), lanes: []*lane{newLane()}}
	for _, w := range []*ServedWorld{a, b, a} {
		w.admit(e, &incoming{
			addressee: w.addressee, listener: &Listener{Requests: nc}, inbox: replies.Subject, data: []byte("{}"),
		})
	}
	for range 2 {
		reply, err := replies.NextMsg(time.Minute)
		require.NoError(t, err)
		require.Equal(t, "429", reply.Header.Get(wire.ErrorCodeHeader))
		require.Equal(t, "50", reply.Header.Get(wire.RetryAfterHeader))
		require.Contains(t, string(reply.Data), "of all worlds of this server")
	}
	require.Equal(t, int64(1), b.Overload().Refused["server"])
	require.Equal(t, 1, a.Overload().Held)
	require.Zero(t, b.Overload().Held)
}

// As many requests of each verb are held as docs/overload.md says: about one town, run or key, or
// about none, and then some more about another one.
func TestAdmit_Slots(t *testing.T) {
	t.Parallel()
	const many, few = 4096, 128
	w := newWorld(Config{Total: 1, ReadWorkers: -1, MaxHeld: 1 << 40}) // nobody works on the requests
	w.service.makeEndpoints()
	t.Cleanup(w.service.stopWorkers)
	w.counts = make([]endpointCount, len(w.service.endpoints)+1)
	var verbs []wire.Verb
	for _, e := range w.service.endpoints {
		verbs = append(verbs, e.Verb)
		if e.queued { // these share the slots of handoffs
			continue
		}
		spec, bound := e.VerbSpec, many
		if spec.Lists {
			bound = few
		}
		admit := func(about string) (admitted bool) {
			before := w.Overload().Held
			w.admit(e, &incoming{addressee: w.addressee, data: []byte(
				`{"` + string(cmp.Or(spec.SlotKey, protocol.SlotTown)) + `":"` + about + `"}`)})
			return w.Overload().Held > before
		}
		for range bound {
			require.True(t, admit("a"), e.Verb)
		}
		refused := w.Overload().Refused["town"]
		require.False(t, admit("a"), e.Verb)
		require.Equal(t, refused+1, w.Overload().Refused["town"], e.Verb)
		require.True(t, admit("b"), e.Verb)
	}
	slices.Sort(verbs)
	require.Equal(t, slices.Sorted(slices.Values(protocol.Verbs())), verbs, "each verb has its endpoint")
}

// BenchmarkShed sheds a handoff that gets no slot, with its answer.
func BenchmarkShed(b *testing.B) {
	data, err := os.ReadFile("../../../../testdata/vectors/handoffs.valid.json")
	require.NoError(b, err)
	var vectors []struct{ Handoff json.RawMessage }
	require.NoError(b, json.Unmarshal(data, &vectors))
	nc := natstest.Connect(b)
	w := newWorld(Config{})
	e := &endpoint{slots: w.service.slots(1, 2), slotKey: townMember}
	e.slots.acquire("main", peekID(townMember, vectors[0].Handoff))
	in := &incoming{
		addressee: w.addressee, listener: &Listener{Requests: nc}, inbox: nc.NewInbox(), data: vectors[0].Handoff,
	}
	b.ReportAllocs()
	for b.Loop() {
		w.admit(e, in)
	}
}

func TestPeekID(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"townId":"a"}`: "a",
		` { "proposal" : {"townId" :` + "\n\t" + `"a b"}}`: "a b",
		`{"reason":"townId","townId":"a"}`:                 "a", // a text that reads like the name
		`{"reason":"say \"townId\":\"x\"","townId":"a"}`:   "a", // a text within a text
		`{"townId":7,"proposal":{"townId":"a"}}`:           "a",
		`{"townId":"Fort \u0410"}`:                         "Fort А",
		`{"townId":"a\"b\\"}`:                              `a"b\`,
		`{"townId":"\ud83d\ude00\/\n"}`:                    "😀/\n",
		`{"townId":"\ud83d"}`:                              "", // no text, and so no request
		`{"townId":"a\x"}`:                                 "",
		`{"townId":"a\u00`:                                 "",
		`{"townId":"a\`:                                    "",
		`{"townId":""}`:                                    "",
		`{"townId":"a`:                                     "",
		`{"townId"`:                                        "",
		`{"townId":`:                                       "",
		`{"town":"a"}`:                                     "",
		``:                                                 "",
		`{"townId":"` + strings.Repeat("x", maxID) + `"}`:          strings.Repeat("x", maxID),
		`{"townId":"` + strings.Repeat("x", maxID+1) + `"}`:        "",
		`{"townId":"` + strings.Repeat(`\u0041`, maxID) + `"}`:     strings.Repeat("A", maxID),
		`{"townId":"` + strings.Repeat(`\u0041`, maxID+1) + `"}`:   "",
		`{"townId":"` + strings.Repeat(`\u0410`, maxID/2+1) + `"}`: "",
		`{"townId":"` + strings.Repeat("x", maxID) + `\n` + `"}`:   "",
		`{"townId":"` + strings.Repeat("x", maxID-1) + `\n` + `"}`: strings.Repeat("x",
			maxID-1) + "\n",
		`{"townId":"` + strings.Repeat("x", maxID-1) + `\ud83d` + `"}`: "",
		strings.Repeat(" ", peekBytes) + `{"townId":"a"}`:              "",
	} {
		require.Equal(t, want, string(peekID(townMember, []byte(payload))), "%.80s", payload)
	}
}

// respelled returns a text as JSON, each rune of it spelled in one of the ways that there are.
func respelled(g *rand.Rand, text string) []byte {
	spelled := []byte{'"'}
	for _, r := range text {
		plain, err := jsontext.AppendQuote(nil, string(r))
		switch {
		case err == nil && g.IntN(2) == 0:
			spelled = append(spelled, plain[1:len(plain)-1]...)
		case r == '/':
			spelled = append(spelled, `\/`...)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				spelled = fmt.Appendf(spelled, [...]string{`\u%04x`, `\u%04X`}[g.IntN(2)], unit)
			}
		}
	}
	return append(spelled, '"')
}

// However the id of a town is spelled, the peeked id is the id of the parsed handoff.
func TestPeekID_Spellings(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(7, 7))
	alphabet := []rune("abc Ж町😀\"\\/\u2028\t<")
	for range 500 {
		id := make([]rune, 1+g.IntN(40))
		for i := range id {
			id[i] = alphabet[g.IntN(len(alphabet))]
		}
		h, err := handoff.New(handoff.Proposal{
			Type: handoff.TalkToTownsfolk, ActorID: "ada", TownID: string(id), Priority: 0.5,
			Reason:       "Because.",
			Args:         map[string]string{handoff.TalkToTownsfolk.ArgumentName(): "casual"},
			SnapshotHash: strings.Repeat("0", 64), DecisionEpoch: 1,
		})
		require.NoError(t, err)
		encoded, err := h.MarshalWire()
		require.NoError(t, err)
		quoted, err := jsontext.AppendQuote(nil, string(id))
		require.NoError(t, err)
		plain := append([]byte(`"townId":`), quoted...)
		require.True(t, bytes.Contains(encoded, plain), "%s", encoded)
		encoded = bytes.Replace(encoded, plain,
			append([]byte(`"townId":`), respelled(g, string(id))...), 1)
		parsed, err := handoff.Parse(encoded, schemas.Limits{})
		require.NoError(t, err, "%s", encoded)
		require.Equal(t, parsed.Proposal.TownID, string(peekID(townMember, encoded)), "%s", encoded)
	}
}

// Whatever arrives, the peeked id is short, and of a valid request it is the parsed id, if that is
// near enough.
func FuzzPeekID(f *testing.F) {
	for _, seed := range []string{
		`{"townId":"a"}`, ` { "townId" : "b" }`, `"townId""townId":"`, `{"townId":"Fort \u0410"}`,
		`{"townId":"\"\\"}`,
		`{"townId":"\ud83d\ude00"}`, `{"townId":"\ud83d"}`, `{"townId":"\`, `{"townId":"\u00`,
		`{"townId":7}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		id := string(peekID(townMember, data))
		require.LessOrEqual(t, len(id), maxID)
		var r messages.TownGet
		err := parse(wire.TownGet, data, &r)
		if err == nil && len(data) <= peekBytes && len(r.TownID) <= maxID &&
			bytes.Contains(data, townMember) {
			require.Equal(t, r.TownID, id)
		}
	})
}

// A user who may act on some towns takes slots of these, however their ids are spelled, and of no
// others.
func TestSubject_OwnTowns(t *testing.T) {
	t.Parallel()
	own := access.User{Name: "ada", Role: wire.Agent, Towns: []string{"Fort А"}}
	w := newWorld(Config{Access: access.NewDirectory([]access.User{own})})
	rights := w.service.config.Access.WorldRights(access.Headers{
		Decoded: nats.Header{layout.UserHeader: {`{"user":"ada"}`}},
	}, "")
	subject := func(data string, queued bool) string {
		e := &endpoint{slotKey: townMember, queued: queued}
		return string(w.slotKey(e, &incoming{rights: rights, data: []byte(data)}))
	}
	require.Equal(t, "Fort А", subject(`{"townId":"Fort А"}`, true))
	require.Equal(t, "Fort А", subject(`{"townId":"Fort \u0410"}`, true))
	require.Empty(t, subject(`{"townId":"Fort \u0411"}`, true))
	require.Equal(t, "Fort Б", subject(`{"townId":"Fort \u0411"}`, false), "a read counts for any")
}

package server_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

func ofTowns(towns ...string) func(*access.User) {
	return func(u *access.User) { u.Towns = towns }
}

func ofActors(actors ...string) func(*access.User) {
	return func(u *access.User) { u.Actors = actors }
}

// An agent speaks for its towns and its actors. What it may not is refused before anything is
// judged: its key stays free, and no run tells of it.
func TestAgentSpeaksForItsTownsAndActors(t *testing.T) {
	t.Parallel()
	agent := servertest.Person(access.Agent, ofTowns("mine"), ofActors("mayor-1"))
	srv := start(t, servertest.WithUsers(agent, servertest.Person(access.Operator)))
	operator, c := as(t, srv.URL(), servertest.Person(access.Operator)), as(t, srv.URL(), agent)
	mine, other := operator.put(snapshot("mine"), ""), operator.put(snapshot("other"), "")

	foreign := marshalled(t, propose(other, handoff.AdvanceProject, "wall"))
	f := c.refused("handoff", foreign)
	require.Equal(t, []any{403, "FORBIDDEN"}, []any{f.Status, f.Code})
	require.Equal(t, `this user may not act on that town: "other"`, f.Message)

	proposal := propose(mine, handoff.AdvanceProject, "wall")
	proposal.ActorID = "somebody else"
	f = c.refused("handoff", marshalled(t, proposal))
	require.Equal(t, []any{403, "ACTOR_NOT_ALLOWED"}, []any{f.Status, f.Code})

	var page struct{ Runs []any }
	require.NoError(t, json.Unmarshal(operator.request("run.list", nil).Data, &page))
	require.Empty(t, page.Runs)
	o := c.send(marshalled(t, propose(mine, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, o.result.Status)
	require.Equal(t, handoff.Executed, operator.send(foreign).result.Status,
		"an operator may speak for all")
}

// Whatever a client writes into the header that names its user, the server's word counts.
func TestNobodyPosesAsAnother(t *testing.T) {
	t.Parallel()
	limited := servertest.Person(access.Agent, ofTowns("mine"))
	free := access.User{Name: "free", Role: access.Agent, Password: servertest.Password}
	srv := start(t, servertest.WithUsers(limited, free, servertest.Person(access.Operator)))
	at := as(t, srv.URL(), servertest.Person(access.Operator)).put(snapshot("other"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	c := as(t, srv.URL(), limited)
	for _, header := range []nats.Header{
		{wire.UserHeader: {`{"user":"free","acc":"CLIENTS"}`}},
		{wire.UserHeader: {`{"user":"free"}`, `{"user":"free"}`}},
		{"nats-request-info": {`{"user":"free"}`}},
		{wire.UserHeader: {}, "Other": {"x"}},
		{wire.UserHeader: {"no JSON"}},
	} {
		msg := &nats.Msg{Subject: wire.Subject("main", "handoff"), Data: body, Header: header}
		reply, err := c.nc.RequestMsg(msg, 20*time.Second)
		require.NoError(t, err)
		require.Equal(t, "FORBIDDEN", c.failureOf(reply).Code, "%v", header)
	}
	require.Equal(t, handoff.Executed, as(t, srv.URL(), free).send(body).result.Status)
}

// A reply subject that a client makes up leads nowhere but to its own account: nothing comes into
// the log, and no plugin is asked by anybody but the engine.
func TestReplySubjectsDoNotReachTheStreams(t *testing.T) {
	t.Parallel()
	srv := start(t, withBus, servertest.WithUsers(everybody()...))
	operator := as(t, srv.URL(), servertest.Person(access.Operator))
	operator.put(snapshot("t"), "")
	js, err := jetstream.New(operator.nc)
	require.NoError(t, err)
	busStream(t, js)
	before := messageCounts(t, js)
	for _, role := range []access.Role{access.Agent, access.Plugin, access.Observer} {
		c := as(t, srv.URL(), servertest.Person(role))
		for _, s := range subjects {
			for _, verb := range []string{"town.get", "control.get"} {
				require.NoError(t, c.nc.PublishRequest(wire.Subject("main", verb), s.subject,
					[]byte(`{"townId":"t"}`)))
			}
		}
		// the readers have answered what came before, or soon will
		c.request("town.get", []byte(`{"townId":"t"}`))
	}
	drained(t, operator)
	require.Equal(t, before, messageCounts(t, js))
}

// drained waits until the service has worked off what it was asked.
func drained(t *testing.T, c *client) {
	t.Helper()
	for range 64 {
		c.request("town.get", []byte(`{"townId":"t"}`))
	}
}

// messages counts what the streams of the world hold.
func messageCounts(t *testing.T, js jetstream.JetStream) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	streams := js.ListStreams(t.Context())
	for stream := range streams.Info() {
		counts[stream.Config.Name] = stream.State.LastSeq
	}
	require.NoError(t, streams.Err())
	return counts
}

// A plugin is asked over the accounts, may answer late and more than once, and reports its own
// towns.
func TestPluginOfATown(t *testing.T) {
	t.Parallel()
	plugin := servertest.Person(access.Plugin, ofTowns("mine"))
	srv := start(t, byPlugin, servertest.WithUsers(plugin, servertest.Person(access.Agent),
		servertest.Person(access.Operator)))
	operator, agent, c := as(t, srv.URL(), servertest.Person(access.Operator)),
		as(t, srv.URL(), servertest.Person(access.Agent)), as(t, srv.URL(), plugin)
	at := operator.put(snapshot("mine"), "")

	times := 0
	_, err := c.nc.Subscribe(wire.ApplySubject("main", "mine"), func(msg *nats.Msg) {
		command, err := apply.ParseCommand(msg.Data, schemas.Limits{})
		if err != nil {
			return
		}
		answer := apply.Later(command, apply.InProgress, 10*time.Millisecond)
		if times++; times > 3 {
			answer = apply.Done(command)
		}
		body, _ := answer.MarshalWire()
		_ = msg.Respond(body)
	})
	require.NoError(t, err)
	require.NoError(t, c.nc.Flush())
	o := agent.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.Executed, o.result.Status)

	now := c.town("mine")
	patch := map[string]any{"townId": "mine", "expectedSnapshotHash": now.SnapshotHash,
		"patch": map[string]any{"pressure": map[string]any{"hope": 0.9}}}
	call[townReply](c, "town.patch", schemas.TownGetReply, patch)
	elsewhere := operator.put(snapshot("other"), "")
	patch["townId"], patch["expectedSnapshotHash"] = "other", elsewhere.SnapshotHash
	require.Equal(t, "FORBIDDEN", c.refused("town.patch", mustJSON(t, patch)).Code)
	require.Equal(t, "FORBIDDEN", c.refused("town.put",
		mustJSON(t, putRequest(snapshot("new"), ""))).Code)
	event := appendRequest("other", written("run-1", "Told", "step-1", 1))
	require.Equal(t, "FORBIDDEN", c.refused("run.append", mustJSON(t, event)).Code)
	c.append("mine", written("run-1", "Told", "step-1", 1))
}

// Where no plugin is subscribed, the engine is told so across the accounts too.
func TestNoPluginWithAccounts(t *testing.T) {
	t.Parallel()
	natstest.Patiently(t, time.Second, func(deadline time.Duration) string {
		srv := start(t, byPlugin, servertest.WithUsers(everybody()...), askedOnce(deadline))
		at := as(t, srv.URL(), servertest.Person(access.Operator)).put(snapshot("t"), "")
		agent := as(t, srv.URL(), servertest.Person(access.Agent))
		agent.within = deadline + 20*time.Second
		return unavailable(agent.send(marshalled(t,
			propose(at, handoff.AdvanceProject, "wall"))))
	})
}

// An agent and an observer hear the run events; and what a server without access control stored is
// there.
func TestAccessOnAnOldDirectory(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	keep := func(c *server.Config) { c.Data = data }
	srv, err := server.Start(t.Context(), configure(keep))
	require.NoError(t, err)
	at := connect(t, srv).put(snapshot("t"), "")
	stop(t, srv)

	srv, err = server.Start(t.Context(), configure(keep, servertest.WithUsers(everybody()...)))
	require.NoError(t, err)
	var heard []*nats.Subscription
	for _, role := range []access.Role{access.Agent, access.Observer, access.Operator} {
		c := as(t, srv.URL(), servertest.Person(role))
		require.Equal(t, at, c.town("t"))
		sub, err := c.nc.SubscribeSync(wire.EventsSubject("main", "*"))
		require.NoError(t, err)
		require.NoError(t, c.nc.Flush())
		heard = append(heard, sub)
	}
	as(t, srv.URL(), servertest.Person(access.Agent)).send(marshalled(t,
		propose(at, handoff.AdvanceProject, "wall")))
	for _, sub := range heard {
		_, err := sub.NextMsg(20 * time.Second)
		require.NoError(t, err)
	}
	stop(t, srv)
	srv = start(t, keep)
	require.Equal(t, at.DecisionEpoch+1, connect(t, srv).town("t").DecisionEpoch)
}

package server_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/access"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// everybody is a user of each role, named as it.
func everybody() []access.User {
	var users []access.User
	for _, role := range access.Roles() {
		users = append(users, servertest.Person(role))
	}
	return users
}

// as connects a user.
func as(t testing.TB, url string, u access.User, options ...nats.Option) *client {
	t.Helper()
	options = append(options, nats.UserInfo(u.Name, servertest.Password),
		nats.Timeout(20*time.Second),
		nats.CustomInboxPrefix(u.InboxPrefix()),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	nc, err := nats.Connect(url, options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return &client{t: t, nc: nc, world: wire.DefaultWorld}
}

// mayPublish and maySubscribe say what the NATS server thinks. A violation arrives before the
// answer of the flush.
func (c *client) mayPublish(subject string) bool {
	c.t.Helper()
	require.NoError(c.t, c.nc.Publish(subject, []byte("{")))
	require.NoError(c.t, c.nc.FlushTimeout(20*time.Second))
	// NATS maps before it looks at permissions, so of a diverted subject it names where that leads.
	return !c.violated("publish", subject) && !c.violated("publish", wire.AstraySubject(subject))
}

func (c *client) maySubscribe(subject string) bool {
	c.t.Helper()
	sub, err := c.nc.SubscribeSync(subject)
	require.NoError(c.t, err)
	defer func() { _ = sub.Unsubscribe() }()
	require.NoError(c.t, c.nc.FlushTimeout(20*time.Second))
	return !c.violated("subscription", subject)
}

func (c *client) violated(what, subject string) bool {
	err := c.nc.LastError()
	return err != nil && strings.Contains(strings.ToLower(err.Error()),
		strings.ToLower(what+` to "`+subject+`"`))
}

// subjects is the decision about every subject of the product: who may publish, and who may
// subscribe, of "agent plugin operator approver observer". The engine may do all.
var subjects = []struct{ subject, publish, subscribe string }{
	{"worldengine.v1.main.handoff", "agent operator", ""},
	{"worldengine.v1.main.town.get", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.town.list", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.town.put", "plugin operator", ""},
	{"worldengine.v1.main.town.patch", "plugin operator", ""},
	{"worldengine.v1.main.town.remove", "operator", ""},
	{"worldengine.v1.main.result.get", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.run.get", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.run.list", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.memory.get", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.town.history", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.run.events", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.event.list", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.run.append", "plugin operator", ""},
	{"worldengine.v1.main.run.cancel", "operator", ""},
	{"worldengine.v1.main.run.retry", "operator", ""},
	{"worldengine.v1.main.control.pause", "operator", ""},
	{"worldengine.v1.main.control.resume", "operator", ""},
	{"worldengine.v1.main.control.get", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.alert.list", "operator observer", ""},
	{"worldengine.v1.main.alert.ack", "operator", ""},
	{"worldengine.v1.main.approval.list", "operator approver observer", ""},
	{"worldengine.v1.main.approval.decide", "operator approver", ""},
	{"worldengine.v1.main.whoami", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.world.status", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.world.samples", "agent plugin operator approver observer", ""},
	{"worldengine.v1.main.world.clients", "operator observer", ""},
	{"worldengine.v1.main.unheard-of", "", ""},
	{"clients.worldengine.v1.main.handoff", "", ""},
	{"clients.worldengine.v1.main.town.put", "", ""},
	{"worldengine.v1.main.apply.t", "", "plugin"},
	{"worldengine.v1.main.hosts.t", "plugin", "plugin"},
	{"worldengine.v1.main.events.t", "", "agent plugin operator approver observer"},
	{"runevents.v2.main.t.run-1", "", "agent plugin operator approver observer"},
	{"alerts.v1.main.APPLY_IN_DOUBT", "", "operator observer"},
	{"deadletter.v1.main.WORLD_main_RUNEVENTS.1.0", "", "operator observer"},
	{"world.main.log.t", "", ""},
	{"world.main.refused.t", "", ""},
	{"world.main.run.run-1", "", ""},
	{"world.main.control", "", ""},
	{"world.main.acknowledged.1", "", ""},
	{"world.main.signal", "", ""},
	{"world.main.pending.t", "", ""},
	{"world.main.asked.t", "", ""},
	{"$SRV.INFO.worldengine", "operator observer", ""},
	{"$JS.API.INFO", "operator", ""},
	{"$JS.API.STREAM.NAMES", "operator", ""},
	{"$JS.API.STREAM.INFO.WORLD_main_LOG", "operator", ""},
	{"$JS.API.STREAM.INFO.WORLD_other_LOG", "", ""},
	{"$JS.API.STREAM.MSG.GET.WORLD_main_LOG", "operator", ""},
	{"$JS.API.DIRECT.GET.WORLD_main_RUNEVENTS", "operator", ""},
	{"$JS.API.CONSUMER.CREATE.WORLD_main_RUNEVENTS.c", "operator", ""},
	{"$JS.API.CONSUMER.MSG.NEXT.WORLD_main_RUNEVENTS.c", "operator", ""},
	{"$JS.API.STREAM.CREATE.WORLD_main_OWN", "", ""},
	{"$JS.API.STREAM.UPDATE.WORLD_main_LOG", "", ""},
	{"$JS.API.STREAM.DELETE.WORLD_main_RUNEVENTS", "", ""},
	{"$JS.API.STREAM.PURGE.WORLD_main_ALERTS", "", ""},
	{"$JS.API.STREAM.MSG.DELETE.WORLD_main_DEADLETTER", "", ""},
	{"$JS.API.STREAM.SNAPSHOT.WORLD_main_LOG", "operator", ""},
	{"$JS.API.STREAM.SNAPSHOT.WORLD_other_LOG", "", ""},
	{"$JS.SNAPSHOT.ACK.WORLD_main_LOG.a.1.1", "operator", ""},
	{"$JS.SNAPSHOT.RESTORE.WORLD_main_LOG.a", "", ""},
	{"$JS.API.STREAM.RESTORE.WORLD_main_LOG", "", ""},
	{"$SYS.REQ.SERVER.PING", "", ""},
	{"_INBOX.somebody.1", "", ""},
	{"_INBOX_agent.1", "", "agent"},
	{"_INBOX_handoffd-asking.1", "", ""},
	{"astray.worldengine.v1.main.apply.t", "", ""},
	{"anything.else", "", ""},
}

// Each role may publish and subscribe what was decided, and nothing else.
func TestEachRoleOnEachSubject(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(everybody()...))
	requireRoles(t, srv.URL())
}

// requireRoles tries every role on every subject at a NATS server.
func requireRoles(t *testing.T, url string) {
	for _, u := range everybody() {
		if u.Role == access.Engine {
			continue
		}
		c := as(t, url, u)
		for _, s := range subjects {
			name := fmt.Sprintf("%s on %s", u.Role, s.subject)
			require.Equal(t, allowed(s.publish, u.Role), c.mayPublish(s.subject), "publish: "+name)
			require.Equal(t, allowed(s.subscribe, u.Role), c.maySubscribe(s.subject),
				"subscribe: "+name)
		}
		require.True(t, c.maySubscribe(u.InboxPrefix()+".>"))
		for _, wide := range []string{">", "_INBOX.>", "world.>", "worldengine.>", "$JS.>",
			"_R_.>", "$SRV.>"} {
			require.False(t, c.maySubscribe(wide), "%s on %s", u.Role, wide)
		}
	}
	engine := as(t, url, servertest.Person(access.Engine))
	for _, s := range subjects {
		require.True(t, engine.maySubscribe(s.subject), s.subject)
	}
	require.True(t, engine.mayPublish("anything.else"))
	require.True(t, engine.mayPublish("$JS.API.STREAM.DELETE.WORLD_main_NOTHING"))
}

func allowed(roles string, role access.Role) bool {
	return slices.Contains(strings.Fields(roles), string(role))
}

// What a running server listens on and stores is in the table, so nothing new goes undecided.
func TestEverySubjectIsDecided(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(everybody()...), withBus)
	c := as(t, srv.URL(), servertest.Person(access.Engine))
	decided := func(filter string) bool {
		return slices.ContainsFunc(subjects,
			func(s struct{ subject, publish, subscribe string }) bool {
				return covers(filter, s.subject)
			})
	}
	reply, err := c.nc.Request("$SRV.INFO.worldengine", nil, 20*time.Second)
	require.NoError(t, err)
	var info struct{ Endpoints []struct{ Subject string } }
	require.NoError(t, json.Unmarshal(reply.Data, &info))
	var verbs []wire.Verb
	for _, e := range info.Endpoints {
		require.True(t, decided(e.Subject), e.Subject)
		verbs = append(verbs, wire.VerbOf(e.Subject))
	}
	require.ElementsMatch(t, verbs, wire.Verbs())

	js, err := jetstream.New(c.nc)
	require.NoError(t, err)
	busStream(t, js)
	names := []string{wire.DeadLetterStream("main")} // made with the first dead letter
	streams := js.ListStreams(t.Context())
	for stream := range streams.Info() {
		names = append(names, stream.Config.Name)
		for _, subject := range stream.Config.Subjects {
			require.True(t, decided(subject), subject)
		}
	}
	require.NoError(t, streams.Err())
	require.ElementsMatch(t, names, wire.Streams("main"))
}

// covers says whether a filter of a stream matches a subject.
func covers(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i := range f {
		if f[i] == ">" {
			return len(s) > i
		}
		if i >= len(s) || f[i] != "*" && f[i] != s[i] {
			return false
		}
	}
	return len(f) == len(s)
}

// Rights of a town: what its plugin is asked, and what it and an agent may hear.
func TestSubjectsOfATown(t *testing.T) {
	t.Parallel()
	mine := func(u *access.User) { u.Towns = []string{"Town 1"} }
	srv := start(t, servertest.WithUsers(servertest.Person(access.Plugin, mine),
		servertest.Person(access.Agent, mine)))
	for _, role := range []access.Role{access.Plugin, access.Agent} {
		c := as(t, srv.URL(), servertest.Person(role))
		require.Equal(t, role == access.Plugin,
			c.maySubscribe("worldengine.v1.main.apply.Town%201"))
		require.False(t, c.maySubscribe("worldengine.v1.main.apply.other"))
		require.False(t, c.maySubscribe("worldengine.v1.main.apply.*"))
		require.True(t, c.maySubscribe("runevents.v2.main.Town%201.>"))
		require.True(t, c.maySubscribe("runevents.v2.main.Town%201.run-1"))
		require.False(t, c.maySubscribe("runevents.v2.main.other.>"))
		require.False(t, c.maySubscribe("runevents.v2.main.>"))
		require.True(t, c.maySubscribe("worldengine.v1.main.events.Town%201"))
		for _, other := range []string{"other", "*", ">"} {
			require.False(t, c.maySubscribe("worldengine.v1.main.events."+other))
		}
	}
}

package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// everybody is a user of each role, named as it.
func everybody() []access.User {
	var users []access.User
	for _, role := range protocol.Roles() {
		users = append(users, servertest.Person(role))
	}
	return users
}

func limitTowns(towns ...string) func(*access.User) {
	return func(u *access.User) { u.Towns = towns }
}

func limitActors(actors ...string) func(*access.User) {
	return func(u *access.User) { u.Actors = actors }
}

// mayPublish and maySubscribe ask the NATS server. A violation arrives before the answer of the
// flush.
func (c *client) mayPublish(subject string) bool {
	c.t.Helper()
	require.NoError(c.t, c.nc.Publish(subject, []byte("{")))
	require.NoError(c.t, c.nc.FlushTimeout(time.Minute))
	// NATS maps before it looks at permissions, so for a diverted subject it names the other one.
	return !c.violated("publish", subject) && !c.violated("publish", layout.DivertedSubject(subject))
}

func (c *client) maySubscribe(subject string) bool {
	c.t.Helper()
	sub, err := c.nc.SubscribeSync(subject)
	require.NoError(c.t, err)
	defer func() { _ = sub.Unsubscribe() }()
	require.NoError(c.t, c.nc.FlushTimeout(time.Minute))
	return !c.violated("subscription", subject)
}

func (c *client) violated(action, subject string) bool {
	err := c.nc.LastError()
	return err != nil && strings.Contains(strings.ToLower(err.Error()),
		strings.ToLower(action+` to "`+subject+`"`))
}

// subjects is the decision about every subject of the product: who may publish, and who may
// subscribe, of "agent plugin operator approver observer". The engine may do all.
var subjects = []struct{ publish, subscribe, subjects string }{
	{"agent operator", "", "@handoff"},
	{"agent plugin operator approver observer", "", "@town.get @town.list @result.get @run.get @run.list @memory.get @town.history " +
		"@run.events @event.list @control.get @whoami @world.status @world.samples worldengine.v1.=worlds.list"},
	{"plugin operator", "", "@town.put @town.patch @run.append"},
	{"operator", "", "worldengine.v1.=worlds.create worldengine.v1.=worlds.remove @town.remove @run.cancel @run.retry @control.pause @control.resume @alert.ack " +
		"$JS.API.INFO $JS.API.STREAM.NAMES $JS.API.STREAM.INFO.WORLD_main_LOG " +
		"$JS.API.STREAM.MSG.GET.WORLD_main_LOG $JS.API.DIRECT.GET.WORLD_main_RUNEVENTS " +
		"$JS.API.CONSUMER.CREATE.WORLD_main_RUNEVENTS.c " +
		"$JS.API.CONSUMER.MSG.NEXT.WORLD_main_RUNEVENTS.c $JS.ACK.WORLD_main_RUNEVENTS.c.1.1.1.1.0 " +
		"$JS.API.STREAM.SNAPSHOT.WORLD_main_LOG $JS.SNAPSHOT.ACK.WORLD_main_LOG.a.1.1 " +
		"$JS.API.STREAM.INFO.WORLD_other_LOG $JS.ACK.WORLD_other_LOG.c.1.1.1.1.0"},
	{"operator observer", "", "@alert.list @world.clients $SRV.INFO.worldengine"},
	{"operator approver observer", "", "@approval.list"},
	{"operator approver", "", "@approval.decide"},
	{"", "", "@unheard-of clients.@handoff clients.@town.put world.main.log.t " +
		"world.main.refused.t world.main.run.run-1 world.main.control " +
		"world.main.acknowledged.1 world.main.signal world.main.pending.t " +
		"world.main.asked.t " +
		"$JS.API.STREAM.CREATE.WORLD_main_OWN $JS.API.STREAM.UPDATE.WORLD_main_LOG " +
		"$JS.API.STREAM.DELETE.WORLD_main_RUNEVENTS $JS.API.STREAM.PURGE.WORLD_main_ALERTS " +
		"$JS.API.STREAM.MSG.DELETE.WORLD_main_DEADLETTER " +
		"$JS.SNAPSHOT.RESTORE.WORLD_main_LOG.a $JS.API.STREAM.RESTORE.WORLD_main_LOG $SYS.REQ.SERVER.PING _INBOX.somebody.1 " +
		"_INBOX_handoffd-asking.1 astray.@apply.t anything.else"},
	{"", "plugin", "@apply.t"},
	{"plugin", "plugin", "@hosts.t"},
	{"", "agent plugin operator approver observer", "@events.t runevents.v2.main.t.run-1"},
	{"", "operator observer", "alerts.v1.main.APPLY_IN_DOUBT deadletter.v1.main.WORLD_main_RUNEVENTS.1.0"},
	{"", "agent", "_INBOX_agent.1"},
}

// subjectsOf returns the subjects of a row.
func subjectsOf(row string) []string {
	return strings.Fields(strings.ReplaceAll(row, "@", "worldengine.v1.main."))
}

// runOnBoth runs a test with users on a server with an embedded NATS, and on one that has joined a NATS
// of the printed configuration: both have the same rights.
func runOnBoth(
	t *testing.T, users []access.User, test func(t *testing.T, w *world), change ...func(*server.Config),
) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, append(change, servertest.WithUsers(users...))...))
	})
	t.Run("external", func(t *testing.T) {
		t.Parallel()
		test(t, newWorld(t, append(change, joining(natsOf(t, configuration(t, users)), users))...))
	})
}

// joining makes a server that joins a nats-server whose configuration was written for users.
func joining(address string, users []access.User) func(*server.Config) {
	return func(c *server.Config) {
		c.External.URL, c.Access = address, &access.Config{Users: users}
		c.External.Connection = natsconn.Options{User: access.EngineUser, Password: servertest.Password}
		c.External.Clients = natsconn.Options{User: access.AskingUser, Password: servertest.Password}
	}
}

// configuration returns the text of WriteNATS for worlds, by default main, with servertest.Password for
// every password.
func configuration(t *testing.T, users []access.User, worlds ...string) string {
	t.Helper()
	if worlds == nil {
		worlds = []string{wire.DefaultWorld}
	}
	var conf strings.Builder
	require.NoError(t, access.WriteNATS(&conf, worlds, users))
	text := conf.String()
	for _, u := range append(users[:len(users):len(users)], access.User{Name: access.EngineUser},
		access.User{Name: access.AskingUser}) {
		require.Contains(t, text, "$"+u.PasswordVariable())
		text = strings.ReplaceAll(text, "$"+u.PasswordVariable()+"}", `"`+servertest.Password+`"}`)
		text = strings.ReplaceAll(text, "$"+u.PasswordVariable()+",", `"`+servertest.Password+`",`)
	}
	return text
}

// natsOf starts a nats-server of a configuration and returns its URL.
func natsOf(t *testing.T, conf string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte(conf), 0o600))
	options, err := natsserver.ProcessConfigFile(file)
	require.NoError(t, err, conf)
	options.NoLog, options.JetStream, options.StoreDir = true, true, t.TempDir()
	return natstest.Start(t, options).ClientURL()
}

// Each role may publish and subscribe the decided subjects, and nothing else; whoami has the same
// rights.
func TestAccess_EachRoleOnEachSubject(t *testing.T) {
	var all []string
	for _, row := range subjects {
		all = append(all, subjectsOf(row.subjects)...)
	}
	for _, verb := range protocol.Verbs() {
		require.Contains(t, all, wire.Subject("main", verb), "a new verb is undecided")
	}
	runOnBoth(t, everybody(), func(t *testing.T, w *world) {
		for _, u := range everybody() {
			c := w.connectUser(u)
			if u.Role == wire.Engine {
				for _, row := range subjects {
					for _, subject := range subjectsOf(row.subjects) {
						require.True(t, c.maySubscribe(subject), subject)
					}
				}
				require.True(t, c.mayPublish("anything.else"))
				require.True(t, c.mayPublish("$JS.API.STREAM.DELETE.WORLD_main_NOTHING"))
				continue
			}
			id := whoAmI(c)
			require.Equal(t, []any{u.Name, u.Role}, []any{id.User, id.Role})
			for _, row := range subjects {
				for _, subject := range subjectsOf(row.subjects) {
					name := fmt.Sprintf("%s on %s", u.Role, subject)
					may := slices.Contains(strings.Fields(row.publish), string(u.Role))
					require.Equal(t, may, c.mayPublish(subject), "publish: "+name)
					require.Equal(t, slices.Contains(strings.Fields(row.subscribe), string(u.Role)),
						c.maySubscribe(subject), "subscribe: "+name)
					if verb := layout.VerbOf(subject); slices.Contains(protocol.Verbs(), verb) {
						require.Equal(t, may, slices.Contains(id.Verbs, verb), "whoami: "+name)
					}
				}
			}
			require.True(t, c.maySubscribe(u.InboxPrefix()+".>"))
			for _, wide := range []string{">", "_INBOX.>", "world.>", "worldengine.>", "$JS.>",
				"_R_.>", "$SRV.>"} {
				require.False(t, c.maySubscribe(wide), "%s on %s", u.Role, wide)
			}
		}
	})
}

func whoAmI(c *client) messages.Identity {
	c.t.Helper()
	return call[messages.Identity](c, "whoami", members{})
}

// An agent and a plugin of a town act there alone, and an agent for its actors alone: a refused
// handoff leaves its key free, and no run. A plugin reports states, and sets no applier; it may
// answer late and more than once. Both hear their town alone.
func TestAccess_UsersOfATown(t *testing.T) {
	t.Parallel()
	mine := []func(*access.User){limitTowns("Town 1"), reads("Town 1")}
	w := newWorld(t, bindPlugin, servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Plugin, mine...),
		servertest.Person(wire.Agent, append(mine, limitActors("mayor-1"))...)))
	agent, plugin := w.connectRole(wire.Agent), w.connectRole(wire.Plugin)
	id := whoAmI(agent)
	require.Equal(t, [][]string{{"Town 1"}, {"mayor-1"}, {"Town 1"}}, [][]string{id.Towns, id.Actors, id.Read})
	for subject, may := range map[string]bool{"worldengine.v1.main.apply.Town%201": true,
		"worldengine.v1.main.apply.other": false, "worldengine.v1.main.apply.*": false} {
		require.Equal(t, may, plugin.maySubscribe(subject), subject)
		require.False(t, agent.maySubscribe(subject), subject)
	}
	at, other := w.putTown("Town 1"), w.putTown("other")
	f := agent.refuses("handoff", w.wall(other), "FORBIDDEN")
	require.Equal(t, `this user may not act on that town: "other"`, f.Message)
	p := propose(at, handoff.AdvanceProject, "wall")
	p.ActorID = "somebody else"
	agent.refuses("handoff", marshalled(t, p), "ACTOR_NOT_ALLOWED")
	require.Empty(t, w.listRuns(members{"limit": 10}))

	times := 0
	plugin.answer("Town%201", func(command *apply.Command, respond func(apply.GameAnswer)) {
		if times++; times > 3 {
			respond(apply.Done(command))
		} else {
			respond(apply.Later(command, apply.InProgress, 10*time.Millisecond))
		}
	})
	agent.executes(w.wall(at))
	patch := func(townID, hash string) members {
		return members{"townId": townID, "expectedSnapshotHash": hash,
			"patch": members{"pressure": members{"hope": 0.9}}}
	}
	at = call[townReply](plugin, "town.patch", patch("Town 1", w.town("Town 1").SnapshotHash))
	event, put := written("run-1", "Told", "step-1", 1), putRequest(at.Snapshot, at.SnapshotHash)
	plugin.append("Town 1", event)
	put["apply"] = "local"
	for verb, request := range map[string]any{"town.patch": patch("other", other.SnapshotHash),
		"town.put": put, "run.append": appendRequest("other", event)} {
		plugin.refuses(verb, request, "FORBIDDEN")
	}
	plugin.refuses("town.put", putRequest(snapshot("new"), ""), "FORBIDDEN")
	delete(put, "apply")
	call[townReply](plugin, "town.put", put)
	require.Equal(t, string(apply.Plugin), call[messages.Town](w.client, "town.get", townRequest("Town 1")).Apply)
}

// A data directory serves with access control, without, and open.
func TestAccess_OnAnOldDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.putTown("t")
	w.restart(servertest.WithUsers(everybody()...))
	live := w.connectRole(wire.Observer).heard(wire.EventsSubject("main", "*"))
	w.connectRole(wire.Agent).executes(w.wall(at))
	live(1)
	for _, open := range []bool{true, false} {
		w.restart(func(c *server.Config) { c.Access, c.Open = nil, open })
		require.Equal(t, at.DecisionEpoch+1, w.town("t").DecisionEpoch)
		js, err := jetstream.New(w.nc)
		require.NoError(t, err)
		_, err = js.Stream(t.Context(), layout.LogStream("main"))
		require.Equal(t, open, err == nil, "%v", err)
	}
}

// requireForbidden is the answer to every way to read another's town, run or result.
func requireForbidden(c *client, verb string, request members) {
	c.t.Helper()
	require.Equal(c.t, "this user may not read that town", c.refuses(verb, request, "FORBIDDEN").Message,
		"%s %v", verb, request)
}

// requireWorldForbidden is the answer to reading something of all towns.
func requireWorldForbidden(c *client, verb string) {
	c.t.Helper()
	require.Equal(c.t, "this is about the whole world, and this user may read some of its towns "+
		"only: ask as a user without `read` in the access file", c.refuses(verb, members{}, "FORBIDDEN").Message)
}

// A user who may read some towns reads nothing of others, by whatever verb, and cannot tell which
// runs and results there are; pages are the same as if there were no others.
func TestAccess_Reading(t *testing.T) {
	t.Parallel()
	var readers []access.User
	for _, role := range []wire.Role{wire.Agent, wire.Plugin, wire.Observer} {
		readers = append(readers, servertest.Person(role, reads("mine", "Town 1"), named("reading-"+string(role))))
	}
	w := newWorld(t, servertest.WithUsers(append(readers, servertest.Person(wire.Operator),
		servertest.Person(wire.Agent, limitTowns("mine")))...))
	runs, keys := map[string]string{}, map[string]string{}
	for _, id := range []string{"mine", "Town 1", "other"} {
		o := w.executes(w.wall(w.putTown(id)))
		runs[id], keys[id] = o.runID, o.result.IdempotencyKey
	}
	runs["none"], keys["none"] = "00000000-0000-4000-8000-000000000000",
		"proposal_"+keys["mine"][9:72]+"0"
	towns := func(c *client) (ids []string) {
		for _, s := range c.list() {
			ids = append(ids, s.TownID)
		}
		return ids
	}
	reading := func(townID, id string) map[string][]members {
		return map[string][]members{
			"town.get": {townRequest(townID), {"townId": townID, "revision": 1}}, "town.history": {townRequest(townID)},
			"control.get": {townRequest(townID)}, "run.list": {townRequest(townID)},
			"run.get": {{"runId": runs[id]}}, "run.events": {{"runId": runs[id]}},
			"result.get": {{"idempotencyKey": keys[id]}, {"townId": townID, "idempotencyKey": keys[id]}},
		}
	}
	for _, u := range readers {
		c := w.connectUser(u)
		for verb, requests := range reading("mine", "mine") {
			require.Empty(t, codeOf(c.patient(verb, requests[0])), verb)
		}
		for _, not := range []string{"other", "none"} {
			for verb, requests := range reading(not, not) {
				for _, request := range requests {
					requireForbidden(c, verb, request)
				}
			}
		}
		if u.Role == wire.Plugin { // the answer to a change has the town's whole state
			other := w.town("other")
			requireForbidden(c, "town.put", putRequest(other.Snapshot, ""))
			requireForbidden(c, "town.patch", members{"townId": "other",
				"expectedSnapshotHash": other.SnapshotHash, "patch": members{}})
		}
		c.refuses("result.get", members{"townId": "mine", "idempotencyKey": keys["none"]}, "UNKNOWN_RESULT")
		requireWorldForbidden(c, "control.get")
		require.Equal(t, []string{"Town 1", "mine"}, towns(c))
		oldest := c.listRuns(members{"order": "oldest", "limit": 1})
		require.Equal(t, []string{runs["mine"], runs["Town 1"]}, runIDs(oldest))
		require.Equal(t, reversed(oldest), c.listRuns(members{"order": "newest", "limit": 1}))
		require.True(t, c.maySubscribe("runevents.v2.main.Town%201.>"))
		require.True(t, c.maySubscribe(wire.EventsSubject("main", "Town%201")))
		for _, subject := range []string{"runevents.v2.main.>", "runevents.v2.main.other.>",
			"alerts.v1.main.>", "deadletter.v1.main.>", wire.EventsSubject("main", "*"),
			wire.EventsSubject("main", "other")} {
			require.False(t, c.maySubscribe(subject), "%s %s", u.Role, subject)
		}
	}
	all := w.connectRole(wire.Agent)
	require.Equal(t, []string{"Town 1", "mine", "other"}, towns(all), "towns to act on do not bound reading")
	require.Len(t, all.listRuns(members{"limit": 10}), 3)
}

// The statistics of a server whose log lost records name no town, since observers of some towns read
// them too.
func TestAccess_StatisticsOfALostLog(t *testing.T) {
	t.Parallel()
	observer := servertest.Person(wire.Observer, reads("mine"))
	w := newWorld(t, servertest.WithUsers(servertest.Person(wire.Operator),
		servertest.Person(wire.Engine), observer))
	w.putTown("other")
	js, err := jetstream.New(w.connectRole(wire.Engine).nc)
	require.NoError(t, err)
	log, err := js.Stream(t.Context(), layout.LogStream("main"))
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), log.CachedInfo().Config.Name))
	_, err = js.CreateStream(t.Context(), log.CachedInfo().Config)
	require.NoError(t, err)
	eventually(t, func() bool { // the first look may have found no stream
		_ = w.request("world.status", members{})
		err := w.Server.Engine().Watcher().Lost()
		return err != nil && strings.Contains(err.Error(), "other")
	})
	stats := serviceStats[messages.Stats](w.connectUser(observer))
	require.Contains(t, stats.LogLost, "the log has lost messages")
	require.NotContains(t, stats.LogLost, "other")
}

// NATS passes on an "nkey" that it does not check as the name of a user. With the printed
// configuration a client that signs in with its own password and another's name as its nkey gets in
// nowhere, and no right of the other.
func TestAccess_UncheckedNKey(t *testing.T) {
	t.Parallel()
	users := append(everybody(), servertest.Person(wire.Agent, named("mara"), limitTowns("mine")))
	address := natsOf(t, configuration(t, users))
	w := newWorld(t, joining(address, users))
	body := string(w.wall(w.putTown("town")))
	require.Contains(t, signInWith(t, address, "mara", "", body), "FORBIDDEN")
	for _, name := range []string{"agent", "operator", access.EngineUser} {
		require.Contains(t, signInWith(t, address, "mara", name, body), "Authorization Violation", name)
	}
}

// signInWith signs in with a user's password and an nkey that is not checked by the client, sends a
// handoff, and returns the answer to it, or the error of NATS.
func signInWith(t *testing.T, address, user, nkey, body string) string {
	t.Helper()
	c := rawTo(t, address)
	c.write("CONNECT {\"verbose\":false,\"headers\":true,\"user\":%q,\"pass\":%q,\"nkey\":%q}\r\n"+
		"SUB _INBOX_%s.x 1\r\nPUB worldengine.v1.main.handoff _INBOX_%s.x %d\r\n%s\r\nPING\r\n",
		user, servertest.Password, nkey, user, user, len(body), body)
	for {
		if line := c.line(); strings.HasPrefix(line, `{"`) || strings.HasPrefix(line, "-ERR") {
			return line
		}
	}
}

// A NATS whose accounts let requests cross without their sender, or that does not check nkeys, is not
// joined.
func TestStart_AccountsThatDoNotFit(t *testing.T) {
	t.Parallel()
	text := configuration(t, everybody())
	for said, wrong := range map[string]string{
		"handoffd permissions": strings.ReplaceAll(text, `"clients.worldengine.`, `"worldengine.`),
		"nkey":                 regexp.MustCompile(`(?m)^\s*\{nkey: .*$`).ReplaceAllString(text, ""),
	} {
		require.NotEqual(t, text, wrong)
		_, err := server.Start(t.Context(), configure(joining(natsOf(t, wrong), everybody())))
		require.ErrorIs(t, err, server.ErrCrossing)
		require.ErrorContains(t, err, said)
	}
}

// stray are subjects that are no inboxes, on which a message would be taken for another's or
// stored.
var stray = []string{
	wire.ApplySubject("main", "t"), "runevents.v2.main.t.run-1", "alerts.v1.main.APPLY_IN_DOUBT",
	"deadletter.v1.main.WORLD_main_RUNEVENTS.1.0", "world.main.log.t", "world.main.refused.t",
	wire.EventsSubject("main", "no-town"), "anything.else",
}

// listen subscribes, and returns a function that returns the subjects of the messages so far.
func listen(t *testing.T, c *client, subjects ...string) func() []string {
	t.Helper()
	var mu sync.Mutex
	var heard []string
	for _, subject := range subjects {
		_, err := c.nc.Subscribe(subject, func(msg *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, msg.Subject)
		})
		require.NoError(t, err)
	}
	require.NoError(t, c.nc.Flush())
	return func() []string {
		require.NoError(t, c.nc.Flush())
		mu.Lock()
		defer mu.Unlock()
		return heard
	}
}

// Clients that name subjects of others, or of streams, as reply, or publish there, reach no other
// client and no stream. A request whose reply subject is no inbox is not carried out, counted, and
// logged now and then; its handoff keeps its key. Nor does discovery answer there. Plugins and
// observers then hear the engine.
func TestAccess_StrayReplies(t *testing.T) {
	log := &natstest.Buffer{}
	runOnBoth(t, everybody(), func(t *testing.T, operator *world) {
		put := listen(t, operator.connectRole(wire.Observer), wire.EventsSubject("main", "*"))
		at := operator.putTown("t")
		eventually(t, func() bool { return len(put()) > 0 })
		js, err := jetstream.New(operator.nc)
		require.NoError(t, err)
		busStream(t, js)
		before := operator.stored()
		commands := listen(t, operator.connectRole(wire.Plugin), wire.ApplySubject("main", "t"))
		events := listen(t, operator.connectRole(wire.Observer), "runevents.v2.main.>", "alerts.v1.main.>",
			"deadletter.v1.main.>", wire.EventsSubject("main", "*"))
		for _, role := range []wire.Role{wire.Agent, wire.Plugin, wire.Observer} {
			c := operator.connectRole(role)
			for _, reply := range stray {
				require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "town.get"), reply,
					bodyOf(t, townRequest("t"))))
				require.NoError(t, c.nc.Publish(reply, []byte("not the engine's")))
			}
			for _, row := range subjects {
				for _, subject := range subjectsOf(row.subjects) {
					require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "control.get"), subject,
						bodyOf(t, townRequest("t"))))
				}
			}
			for range 64 { // the readers have answered all requests before
				c.request("town.get", townRequest("t"))
			}
		}
		everything := listen(t, operator.connectRole(wire.Engine), stray...)
		counted := func() int64 {
			s := serviceStats[struct{ Overload struct{ StrayReplies int64 } }](operator.client)
			return s.Overload.StrayReplies
		}
		refused := counted()
		for _, reply := range stray {
			require.NoError(t, operator.nc.PublishRequest(wire.Subject("main", "handoff"), reply, operator.wall(at)))
			for _, subject := range []string{"$SRV.INFO", "$SRV.PING.worldengine", "$SRV.STATS.worldengine"} {
				require.NoError(t, operator.nc.PublishRequest(subject, reply, nil))
			}
		}
		eventually(t, func() bool { return counted() == refused+int64(4*len(stray)) })
		require.Equal(t, at, operator.town("t"), "nothing was carried out")
		require.Empty(t, slices.Concat(everything(), commands(), events()))
		require.Equal(t, before, operator.stored())
		lines := strings.Count(log.String(), "is no inbox")
		require.NotZero(t, lines)
		require.Less(t, lines, 2*4*len(stray), "some of each kind are logged")
		operator.connectRole(wire.Agent).send(operator.wall(at))
		eventually(t, func() bool { return len(events()) > 0 && len(commands()) > 0 })
	}, bindPlugin, withBus, logged(log), func(c *server.Config) { c.Engine.Retry.Deadline = 200 * time.Millisecond })
}

// An operator's durable consumer of the bus acknowledges events, and gets none of them again.
func TestAccess_DurableConsumer(t *testing.T) {
	runOnBoth(t, everybody(), func(t *testing.T, w *world) {
		w.executes(w.wall(w.putTown("t")))
		js, err := jetstream.New(w.connectRole(wire.Operator).nc)
		require.NoError(t, err)
		consumer, err := busStream(t, js).CreateConsumer(t.Context(),
			jetstream.ConsumerConfig{Durable: "reader"})
		require.NoError(t, err)
		event, err := consumer.Next(jetstream.FetchMaxWait(time.Minute))
		require.NoError(t, err)
		require.NoError(t, event.DoubleAck(t.Context()))
	}, withBus)
}

// stored returns the last sequence of each stream of a world.
func (c *client) stored() map[string]uint64 {
	c.t.Helper()
	js, err := jetstream.New(c.nc)
	require.NoError(c.t, err)
	counts := map[string]uint64{}
	for stream := range js.ListStreams(c.t.Context()).Info() {
		if strings.HasPrefix(stream.Config.Name, "WORLD_") {
			counts[stream.Config.Name] = stream.State.LastSeq
		}
	}
	return counts
}

// Without an access file only the holder of the operator's key reaches a stream: a message on the
// log's subjects, or a request to JetStream, has no effect, and a reply subject leads into none.
func TestDefault_ProtectsTheStreams(t *testing.T) {
	t.Parallel()
	c := newWorld(t, withBus)
	at := c.putTown("t")
	operator := &client{t: t, nc: c.streams().Conn()}
	busStream(t, c.streams())
	before := operator.stored()
	hostile := []string{"world.main.log.t", "world.main.log.>", "world.main.refused.t", "world.main.control",
		"world.main.signal", "runevents.v2.main.t.run", "alerts.v1.main.X", "deadletter.v1.main.X.1.0",
		"$JS.API.STREAM.DELETE.WORLD_main_LOG"}
	for _, subject := range hostile {
		_ = c.nc.Publish(subject, []byte(`{"damage":true}`))
		if !strings.Contains(subject, ">") {
			require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "town.get"), subject,
				bodyOf(t, townRequest("t"))))
		}
	}
	for _, subject := range []string{
		"STREAM.DELETE.WORLD_main_LOG", "STREAM.PURGE.WORLD_main_LOG", "STREAM.UPDATE.WORLD_main_LOG",
		"STREAM.MSG.DELETE.WORLD_main_LOG", "STREAM.INFO.WORLD_main_LOG", "STREAM.CREATE.WORLD_other_LOG",
		"CONSUMER.NAMES.WORLD_main_LOG",
	} {
		reply, err := c.nc.Request("$JS.API."+subject, []byte(`{"name":"WORLD_main_LOG"}`), time.Minute)
		if err == nil {
			require.Contains(t, string(reply.Data), "not enabled", subject)
		} else {
			require.ErrorIs(t, err, nats.ErrNoResponders, subject)
		}
	}
	for range 50 { // the readers have answered all requests before
		require.Equal(t, at, c.town("t"))
	}
	require.Equal(t, before, operator.stored())
}

// Every verb is answered without credentials, and public subjects are heard; the ordinary NATS tools
// discover the service and read its statistics. No client passes for the engine towards the others.
func TestDefault_AnybodyAsksAndHears(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, messages.Identity{World: "main", Verbs: protocol.Verbs()}, whoAmI(w.client))
	live := w.heard(wire.EventsSubject("main", "*"))
	for _, verb := range protocol.Verbs() {
		w.request(string(verb), `{}`)
	}
	w.executes(w.talk(w.putTown("town-a")))
	live(2)
	info := w.discover()
	require.Equal(t, []string{"worldengine", "main"}, []string{info.Name, info.Metadata["world"]})
	var verbs []wire.Verb
	for _, e := range info.Endpoints {
		verbs = append(verbs, layout.VerbOf(e.Subject))
	}
	require.ElementsMatch(t, protocol.Verbs(), verbs)
	require.Equal(t, int64(1), serviceStats[messages.Stats](w.client).Results[handoff.Executed])

	engines := []string{
		wire.EventSubject("main", "x", "y"), wire.AlertSubject("main", "x"),
		layout.DeadLetterSubject("main", "x", "y", "z"), wire.ApplySubject("main", "x"),
		wire.EventsSubject("main", "x"),
	}
	heard := listen(t, w.client, append(engines, "end")...)
	for _, subject := range engines {
		require.False(t, w.mayPublish(subject))
	}
	require.NoError(t, w.nc.Publish("end", nil))
	eventually(t, func() bool { return slices.Contains(heard(), "end") })
	require.Equal(t, []string{"end"}, heard())

	config := configure()
	config.External.URL = w.Server.URL()
	_, err := server.Start(t.Context(), config)
	require.ErrorContains(t, err, "--open", "it keeps its streams")
}

// discover asks for the service, as the ordinary NATS tools do.
func (c *client) discover() (info micro.Info) {
	c.t.Helper()
	reply, err := c.nc.Request("$SRV.INFO.worldengine", nil, 30*time.Second)
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(reply.Data, &info))
	return info
}

// The operator's key stays the same, is named by discovery, and leads to the streams. A key that
// others may have read is refused, until it is removed or its owner alone may read it.
func TestOperatorKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := w.Server.OperatorKey()
	mode := func() os.FileMode {
		info, err := os.Stat(file)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	seed := func() string { return strings.Fields(string(contents(t, file)))[0] }
	before := seed()
	w.restart()
	require.Equal(t, before, seed())
	require.Equal(t, os.FileMode(0o600), mode())
	require.Contains(t, string(contents(t, file)),
		natsconn.OperatorKeyAddress+strings.TrimPrefix(w.Server.URL(), "nats://")+"\n")
	require.Equal(t, file, w.discover().Metadata[protocol.OperatorKeyMetadata])
	w.log()

	w.Stop()
	for _, open := range []os.FileMode{0o640, 0o604, 0o644, 0o620} {
		require.NoError(t, os.Chmod(file, open))
		_, err := server.Start(t.Context(), w.Config)
		require.ErrorContains(t, err, fmt.Sprintf("%s has mode %04o", file, open))
		require.ErrorContains(t, err, "remove the file")
		require.ErrorContains(t, err, "chmod 600 "+file)
		require.Equal(t, open, mode()) // for somebody to see
	}
	require.NoError(t, os.Remove(file))
	w.start()
	require.NotEqual(t, before, seed())
}

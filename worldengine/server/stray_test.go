package server_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// stray are subjects that are no inboxes, on which a message would be taken for another's or
// stored.
var stray = []string{
	wire.ApplySubject("main", "t"), "runevents.v2.main.t.run-1", "alerts.v1.main.APPLY_IN_DOUBT",
	"deadletter.v1.main.WORLD_main_RUNEVENTS.1.0", "world.main.log.t", "world.main.refused.t",
	wire.EventsSubject("main", "no-town"), "anything.else",
}

// A request whose reply subject is no inbox is not carried out, counted, and logged now and
// then; its handoff keeps its key. Nor does discovery answer there.
func TestStrayReplies(t *testing.T) {
	t.Parallel()
	var log natstest.Buffer
	srv := start(t, servertest.WithUsers(everybody()...),
		func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	engine, operator := as(t, srv.URL(), servertest.Person(access.Engine)),
		as(t, srv.URL(), servertest.Person(access.Operator))
	at := operator.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	everything := listen(t, engine, stray...)
	for _, reply := range stray {
		require.NoError(t, operator.nc.PublishRequest(wire.Subject("main", "handoff"), reply, body))
		for _, subject := range []string{"$SRV.INFO", "$SRV.PING.worldengine",
			"$SRV.STATS.worldengine"} {
			require.NoError(t, operator.nc.PublishRequest(subject, reply, nil))
		}
	}
	require.NoError(t, operator.nc.Flush())
	counted := func() bool { return strayReplies(t, operator) == int64(4*len(stray)) }
	require.Eventually(t, counted, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, at, operator.town("t"), "nothing was carried out")
	require.Empty(t, everything(), "no subject but an inbox got an answer")
	lines := strings.Count(log.String(), "is no inbox")
	require.NotZero(t, lines)
	require.Less(t, lines, 4*len(stray), "some of each kind are logged")
	require.Equal(t, handoff.Executed, operator.send(body).result.Status, "the log takes commits")
}

func strayReplies(t *testing.T, c *client) int64 {
	t.Helper()
	reply, err := c.nc.Request("$SRV.STATS.worldengine", nil, 20*time.Second)
	require.NoError(t, err)
	var stats micro.Stats
	require.NoError(t, json.Unmarshal(reply.Data, &stats))
	var data struct {
		Overload struct{ StrayReplies int64 }
	}
	require.NoError(t, json.Unmarshal(stats.Endpoints[0].Data, &data))
	return data.Overload.StrayReplies
}

// listen subscribes, and returns what gives the subjects of what was received.
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

// requireNoAnswersToOthers has clients name others' subjects as reply, and as where they publish:
// neither a plugin nor an observer receives anything. Then it sees that both receive what is the
// engine's.
func requireNoAnswersToOthers(t *testing.T, address string) {
	t.Helper()
	operator := as(t, address, servertest.Person(access.Operator))
	at := operator.put(snapshot("t"), "")
	plugin, observer := as(t, address, servertest.Person(access.Plugin)),
		as(t, address, servertest.Person(access.Observer))
	commands := listen(t, plugin, wire.ApplySubject("main", "t"))
	events := listen(t, observer, "runevents.v2.main.>", "alerts.v1.main.>", "deadletter.v1.main.>",
		wire.EventsSubject("main", "*"))
	for _, role := range []access.Role{access.Agent, access.Plugin, access.Observer} {
		c := as(t, address, servertest.Person(role))
		for _, reply := range stray {
			require.NoError(t, c.nc.PublishRequest(wire.Subject("main", "town.get"), reply,
				[]byte(`{"townId":"t"}`)))
			require.NoError(t, c.nc.Publish(reply, []byte("not the engine's")))
		}
		for range 64 { // the readers have answered what came before
			c.request("town.get", []byte(`{"townId":"t"}`))
		}
	}
	require.Empty(t, commands())
	require.Empty(t, events())
	as(t, address, servertest.Person(access.Agent)).send(marshalled(t,
		propose(at, handoff.AdvanceProject, "wall")))
	require.Eventually(t, func() bool { return len(events()) > 0 && len(commands()) > 0 },
		20*time.Second, 10*time.Millisecond)
}

func soon(c *server.Config) { c.Engine.Plugin.Deadline = 200 * time.Millisecond }

// What clients are answered reaches no other client, whatever reply subject they name.
func TestAnswersReachNoOtherClient(t *testing.T) {
	t.Parallel()
	srv := start(t, byPlugin, soon, servertest.WithUsers(everybody()...))
	requireNoAnswersToOthers(t, srv.URL())
}

func TestAnswersReachNoOtherClientOnAnExternalNATS(t *testing.T) {
	t.Parallel()
	address := externalNATS(t, everybody())
	start(t, byPlugin, soon, joining(address, everybody()))
	requireNoAnswersToOthers(t, address)
}

// A NATS whose accounts let requests cross without who sent them is not joined.
func TestStart_AccountsWithoutSender(t *testing.T) {
	t.Parallel()
	text := configuration(t, everybody())
	unnamed := strings.ReplaceAll(text, `"clients.worldengine.`, `"worldengine.`)
	require.NotEqual(t, text, unnamed)
	_, err := server.Start(t.Context(), configure(joining(natsOf(t, unnamed), everybody())))
	require.ErrorIs(t, err, server.ErrCrossing)
	require.ErrorContains(t, err, "handoffd permissions")
}

// configuration returns what WriteNATS writes, with servertest.Password for every password.
func configuration(t *testing.T, users []access.User) string {
	t.Helper()
	var conf strings.Builder
	require.NoError(t, access.WriteNATS(&conf, "main", users))
	all := append(users[:len(users):len(users)], access.User{Name: access.EngineUser},
		access.User{Name: access.AskingUser})
	text := conf.String()
	for _, u := range all {
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

package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/internal/serve/access"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index/indextest"
	"worldengine/worldengine/internal/store/lease"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/internal/store/worldsettings"
	"worldengine/worldengine/internal/testkit/natstest"
	"worldengine/worldengine/wire"
)

func TestMain(m *testing.M) { natstest.Main(m, 32) }

// world is a server of its own, and a client of it: with access control its operator.
type world struct {
	*client
	*servertest.World
}

// newWorld starts a server, which ends with the test.
func newWorld(t testing.TB, change ...servertest.Change) *world {
	t.Helper()
	w := &world{World: launch(t, change...)}
	w.client = connect(t, w.Server)
	return w
}

// launch starts a server, whose index is compared with its log before the server ends.
func launch(t testing.TB, change ...servertest.Change) *servertest.World {
	t.Helper()
	w := servertest.Start(t, impatient(change)...)
	w.BeforeStop = func(srv *server.Server) { requireIndex(t, srv) }
	return w
}

// restart stops the server and starts it again on its data, with more changes from then on.
func (w *world) restart(change ...servertest.Change) {
	w.t.Helper()
	w.Stop()
	w.start(change...)
}

func (w *world) start(change ...servertest.Change) {
	w.t.Helper()
	w.Start(change...)
	w.client = connect(w.t, w.Server)
}

// start starts a server without a client.
func start(t testing.TB, change ...servertest.Change) *server.Server {
	t.Helper()
	return launch(t, change...).Server
}

// beside opens one more engine on the NATS of a server, with the engine's part of the changes, and
// ends it with the test.
func beside(t testing.TB, srv *server.Server, change ...servertest.Change) *engine.Engine {
	t.Helper()
	return servertest.OpenEngine(t, connected(t, srv.URL()), configure(change...).Engine)
}

// open lets others join the server's NATS.
func open(config *server.Config) { config.Open = true }

// withBus has the server publish the run events into JetStream too.
func withBus(config *server.Config) { config.Engine.Outbox.Enabled = true }

// patient lets handoffs wait for the end of a pause for as long as a test takes.
func patient(config *server.Config) { config.Engine.PauseTimeout = time.Hour }

// pauseWait bounds how long a handoff waits for the end of a pause, or for a game that is away.
func pauseWait(d time.Duration) func(*server.Config) {
	return func(c *server.Config) { c.Engine.PauseTimeout = d }
}

// logged has the server write its log into a buffer.
func logged(log *natstest.Buffer) func(*server.Config) {
	return func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) }
}

// leaseTTL is how long leases last without renewal: a busy machine is late with it.
const leaseTTL = 5 * lease.DefaultTTL

// impatient returns changes behind one that shortens waits but the lease's, and gives each start another port.
func impatient(change []servertest.Change) []servertest.Change {
	return append([]servertest.Change{func(c *server.Config) {
		c.Embedded.Listen = "127.0.0.1:0"
		c.SetReconnectWait(100 * time.Millisecond)
		c.SetLeaseTTL(leaseTTL)
	}}, change...)
}

// elector acquires the lease of a world for a server that is none of this process.
func elector(js jetstream.JetStream, world, holder string) *lease.Elector {
	return &lease.Elector{JetStream: js, World: world, Holder: holder, Logger: quiet(),
		Keeper: lease.NewKeeper(js), TTL: leaseTTL}
}

func configure(change ...servertest.Change) server.Config {
	return servertest.Configure(impatient(change)...)
}

func stop(t testing.TB, srv *server.Server) {
	t.Helper()
	requireIndex(t, srv)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, srv.Close(ctx))
}

// requireIndex compares the index that a server uses with the log, if it has both.
func requireIndex(t testing.TB, srv *server.Server) {
	t.Helper()
	if nc, world, dir := srv.IndexInUse(context.WithoutCancel(t.Context())); dir != "" {
		indextest.RequireRebuilt(t, nc, world, dir)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// eventually waits until a condition is met.
func eventually(t testing.TB, met func() bool) {
	t.Helper()
	require.Eventually(t, met, time.Minute, 10*time.Millisecond)
}

// client talks to a server as an agent does: over its own connection, with the fixed interface.
type client struct {
	t     testing.TB
	nc    *nats.Conn
	world string
	// within is how long a request may take; 0 means a minute.
	within time.Duration
}

// connect connects to a server: with access control as its operator, or else its first user.
func connect(t testing.TB, srv *server.Server) *client {
	t.Helper()
	if known := srv.Access(); known != nil {
		i := slices.IndexFunc(known.Users,
			func(u access.User) bool { return u.Role == wire.Operator })
		return connectUser(t, srv.URL(), known.Users[max(i, 0)])
	}
	return &client{t: t, nc: connected(t, srv.URL()), world: wire.DefaultWorld}
}

// dial connects, and soon again when the connection is lost.
func dial(url string, options ...nats.Option) (*nats.Conn, error) {
	return natstest.TryDial(url, append([]nats.Option{nats.ReconnectWait(100 * time.Millisecond)}, options...)...)
}

// connected connects, and closes the connection with the test.
func connected(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := dial(url, options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// connectUser connects a user.
func connectUser(t testing.TB, url string, u access.User, options ...nats.Option) *client {
	t.Helper()
	options = append(options, nats.UserInfo(u.Name, servertest.Password),
		nats.CustomInboxPrefix(u.InboxPrefix()),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	return &client{t: t, nc: connected(t, url, options...), world: wire.DefaultWorld}
}

// connectUser connects a user to the world.
func (w *world) connectUser(u access.User) *client {
	w.t.Helper()
	return connectUser(w.t, w.Server.URL(), u)
}

// connectRole connects the user of a role, named as it.
func (w *world) connectRole(role wire.Role) *client {
	w.t.Helper()
	return w.connectUser(servertest.Person(role))
}

// bodyOf returns the payload of a request: bytes and texts as they are, and the JSON of other values.
func bodyOf(t testing.TB, request any) []byte {
	t.Helper()
	switch v := request.(type) {
	case nil:
		return nil
	case []byte:
		return v
	case json.RawMessage:
		return v
	case string:
		return []byte(v)
	}
	data, err := json.Marshal(request)
	require.NoError(t, err)
	return data
}

func (c *client) request(verb string, request any) *nats.Msg {
	c.t.Helper()
	_, name, _ := strings.Cut(verb, ".")
	return c.ask(verb, request, slices.Contains([]string{"get", "list", "status"}, name))
}

// ask makes a request. One that changes nothing is made again if it gets no answer.
func (c *client) ask(verb string, request any, changesNothing bool) *nats.Msg {
	c.t.Helper()
	body := bodyOf(c.t, request)
	var reply *nats.Msg
	ask := func() (err error) {
		reply, err = c.nc.Request(wire.Subject(c.world, verb), body, cmp.Or(c.within, time.Minute))
		return err
	}
	err := ask()
	if errors.Is(err, nats.ErrTimeout) && changesNothing { // a server that stands by drops requests
		err = ask()
	}
	if errors.Is(err, nats.ErrNoResponders) { // a server that has joined a NATS may stand by for a moment
		eventually(c.t, func() bool { err = ask(); return !errors.Is(err, nats.ErrNoResponders) })
	}
	require.NoError(c.t, err)
	c.requireDeclared(wire.Verb(verb), reply)
	return reply
}

// requireDeclared checks that the table of errors lets a verb answer with the code of an error reply.
func (c *client) requireDeclared(verb wire.Verb, reply *nats.Msg) {
	c.t.Helper()
	if codeOf(reply) != "" {
		code := wire.Code(c.failureOf(reply).Code)
		require.True(c.t, protocol.LookupError(code).May(verb), "%s answers %s", verb, code)
	}
}

// withHeader makes a request with a header.
func (c *client) withHeader(verb string, request any, name, value string) *nats.Msg {
	c.t.Helper()
	reply, err := c.nc.RequestMsg(&nats.Msg{
		Subject: wire.Subject(c.world, verb), Data: bodyOf(c.t, request),
		Header: nats.Header{name: {value}},
	}, time.Minute)
	require.NoError(c.t, err)
	return reply
}

// later sends a request and returns the channel of its reply.
func (c *client) later(verb string, request any) <-chan *nats.Msg {
	c.t.Helper()
	return c.publish(&nats.Msg{Subject: wire.Subject(c.world, verb), Data: bodyOf(c.t, request)})
}

// publish sends a message and returns the channel of its reply.
func (c *client) publish(msg *nats.Msg) <-chan *nats.Msg {
	c.t.Helper()
	replies := make(chan *nats.Msg, 1)
	msg.Reply = c.nc.NewInbox()
	_, err := c.nc.ChanSubscribe(msg.Reply, replies)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.PublishMsg(msg))
	return replies
}

// codeOf returns the status of an error reply; "" for any other.
func codeOf(reply *nats.Msg) string { return reply.Header.Get(wire.ErrorCodeHeader) }

// patient makes a request as clients do: when the engine is behind (503) it asks again.
func (c *client) patient(verb string, request any) *nats.Msg {
	c.t.Helper()
	reply := c.request(verb, request)
	for until := time.Now().Add(time.Minute); codeOf(reply) == "503" && time.Now().Before(until); {
		reply = c.request(verb, request)
	}
	return reply
}

// members are the members of a request.
type members = map[string]any

// call makes a request that must succeed, checks the answer against its schema, and reads it.
func call[T any](c *client, verb string, request any) (v T) {
	c.t.Helper()
	reply := c.patient(verb, request)
	require.Empty(c.t, codeOf(reply), "%s", reply.Data)
	_, err := schemas.Parse(schemas.ReplyOf(verb), reply.Data, schemas.Limits{Bytes: 64 << 20})
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(reply.Data, &v))
	return v
}

// failure is an error reply.
type failure struct {
	Status     int
	Code       string
	Message    string
	Details    []schemas.Violation
	RetryAfter string
}

// paths are the places that a failure names.
func (f failure) paths() (paths []string) {
	for _, d := range f.Details {
		paths = append(paths, d.Path)
	}
	return paths
}

// short renders a failure without its words.
func (f failure) short() string { return fmt.Sprint(f.Status, " ", f.Code, " ", f.RetryAfter) }

// refused makes a request that must be refused, and checks the error reply against its schema.
// While the index is behind the log, it asks again, as clients do.
func (c *client) refused(verb string, request any) failure {
	c.t.Helper()
	for until := time.Now().Add(time.Minute); ; {
		f := c.failureOf(c.ask(verb, request, true))
		if f.Code != string(wire.CodeIndexBehind) || time.Now().After(until) {
			return f
		}
	}
}

// refuses makes a request that must be refused with a code, of which the table of errors has the
// status.
func (c *client) refuses(verb string, request any, code string) failure {
	c.t.Helper()
	f := c.refused(verb, request)
	require.Equal(c.t, code, f.Code, "%s %.200s: %s", verb, bodyOf(c.t, request), f.Message)
	return f
}

func (c *client) failureOf(reply *nats.Msg) failure {
	c.t.Helper()
	status, err := strconv.Atoi(codeOf(reply))
	require.NoError(c.t, err, "no error reply: %s", reply.Data)
	require.NotEmpty(c.t, reply.Header.Get("Nats-Service-Error"))
	_, err = schemas.Parse(schemas.Error, reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	var body struct{ Error failure }
	require.NoError(c.t, json.Unmarshal(reply.Data, &body))
	spec := protocol.LookupError(wire.Code(body.Error.Code))
	require.Equal(c.t, spec.Status, status, body.Error.Code)
	body.Error.Status, body.Error.RetryAfter = status, reply.Header.Get(wire.RetryAfterHeader)
	return body.Error
}

// outcome is the answer to a handoff.
type outcome struct {
	runID  string
	bytes  []byte
	result *handoff.Result
}

// send sends a handoff that must get a result, which must verify.
func (c *client) send(body []byte) outcome {
	c.t.Helper()
	return c.resultOf(c.patient("handoff", body))
}

// executes sends a handoff that must be executed.
func (c *client) executes(body []byte) outcome {
	c.t.Helper()
	o := c.send(body)
	require.Equal(c.t, handoff.Executed, o.result.Status, "%s", o.bytes)
	return o
}

// sendLater sends a handoff and returns the channel of its reply.
func (c *client) sendLater(body []byte) <-chan *nats.Msg {
	c.t.Helper()
	return c.later("handoff", body)
}

// resultOf reads a reply that must be a result.
func (c *client) resultOf(reply *nats.Msg) outcome {
	c.t.Helper()
	require.Empty(c.t, codeOf(reply), "%s", reply.Data)
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	require.NoError(c.t, err)
	runID := reply.Header.Get(wire.RunIDHeader)
	require.NotEmpty(c.t, runID)
	return outcome{runID: runID, bytes: reply.Data, result: result}
}

// townReply is the answer of town.get and town.put.
type townReply struct {
	TownID        string
	Snapshot      json.RawMessage
	SnapshotHash  string
	DecisionEpoch int64
	Revision      uint64
}

// townRequest is a request about a town.
func townRequest(townID string) members { return members{"townId": townID} }

func (c *client) town(id string) townReply {
	c.t.Helper()
	return call[townReply](c, "town.get", townRequest(id))
}

func (c *client) put(snapshot any, expected string) townReply {
	c.t.Helper()
	return call[townReply](c, "town.put", putRequest(snapshot, expected))
}

// putTown makes a town to try everything on, with more members of the request: names and values.
func (c *client) putTown(id string, more ...any) townReply {
	c.t.Helper()
	request := putRequest(snapshot(id), "")
	for i := 0; i < len(more); i += 2 {
		request[more[i].(string)] = more[i+1]
	}
	return call[townReply](c, "town.put", request)
}

func putRequest(snapshot any, expected string) members {
	request := members{"snapshot": snapshot}
	if expected != "" {
		request["expectedSnapshotHash"] = expected
	}
	return request
}

type eventsReply struct {
	Events       []runevents.Record
	LastEventSeq int64
	Mark         uint64
	Snapshot     *runevents.Snapshot
}

// events returns the events of a run, whose payloads must fit the schemas of their types.
func (c *client) events(runID string) []runevents.Record {
	c.t.Helper()
	page := call[eventsReply](c, "run.events", members{"runId": runID})
	require.NotEmpty(c.t, page.Events)
	require.Equal(c.t, page.Events[len(page.Events)-1].RunSeq, page.LastEventSeq)
	for _, e := range page.Events {
		if _, err := schemas.Source(schemas.Name(e.EventType)); err == nil && e.Payload != nil {
			_, err = schemas.Parse(schemas.Name(e.EventType), e.Payload, schemas.Limits{})
			require.NoError(c.t, err, "%s: %s", e.EventType, e.Payload)
		}
	}
	return page.Events
}

// story reads the events of a run and checks their places: unique, rising, without a gap. It
// returns their types in order, with the attempt of a step after the first.
func (c *client) story(runID string) (list []string) {
	c.t.Helper()
	for i, e := range c.events(runID) {
		require.Equal(c.t, int64(i+1), e.RunSeq)
		text := string(e.EventType)
		if e.StepID != "" {
			text += " " + e.StepID
		}
		if e.LogicalAttemptID > 1 {
			text += fmt.Sprint(" ", e.LogicalAttemptID)
		}
		list = append(list, text)
	}
	return list
}

// checked is the story of a handoff that is accepted, up to the application.
var checked = []string{
	"RunStarted", "StepStarted duplicate-check", "StepCompleted duplicate-check",
	"StepStarted stale-check", "StepCompleted stale-check", "StepStarted precondition-check",
	"StepCompleted precondition-check", "StepStarted apply",
}

// acceptedStory returns the story of a handoff that is accepted, and goes on so.
func acceptedStory(more ...string) []string { return slices.Concat(checked, more) }

// eventsOfType returns the events of a run that have a type.
func (c *client) eventsOfType(runID string, event runevents.EventType) []runevents.Record {
	c.t.Helper()
	return slices.DeleteFunc(c.events(runID),
		func(r runevents.Record) bool { return r.EventType != event })
}

func (c *client) run(runID string) runevents.Snapshot {
	c.t.Helper()
	return call[runevents.Snapshot](c, "run.get", members{"runId": runID})
}

// pending returns the run whose command is pending in a town; "" if there is none.
func (c *client) pending(townID string) string {
	c.t.Helper()
	return call[struct{ PendingRunID string }](c, "town.get", townRequest(townID)).PendingRunID
}

// pendingRun returns the run whose command is pending in a town, once there is one.
func (c *client) pendingRun(townID string) (runID string) {
	c.t.Helper()
	eventually(c.t, func() bool { runID = c.pending(townID); return runID != "" })
	return runID
}

// awaitApplied waits until no command is pending in a town.
func (c *client) awaitApplied(townID string) {
	c.t.Helper()
	eventually(c.t, func() bool { return c.pending(townID) == "" })
}

// streams is the JetStream of the server, for the operator.
func (c *client) streams() jetstream.JetStream {
	c.t.Helper()
	nc, err := natsconn.Options{}.ConnectOperator(c.nc.ConnectedUrl(), "operator")
	require.NoError(c.t, err)
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(c.t, err)
	return js
}

// log is the stream of the world's log.
func (c *client) log() jetstream.Stream {
	c.t.Helper()
	stream, err := c.streams().Stream(c.t.Context(), layout.LogStream(c.world))
	require.NoError(c.t, err)
	return stream
}

// logSetting stores a setting of the world in the log, as a later program may have done.
func (c *client) logSetting(name, value string) {
	c.t.Helper()
	log, err := commitlog.OpenReader(c.t.Context(), c.streams(), c.world)
	require.NoError(c.t, err)
	stored, err := worldsettings.Read(c.t.Context(), log)
	require.NoError(c.t, err)
	entries := stored.Entries()
	for i := range entries {
		if entries[i].Name == name {
			entries[i].Value = value
		}
	}
	msg, err := records.Encode(&machine.Record{Kind: machine.KindSettings, Settings: entries},
		layout.SettingsSubject(c.world), nil)
	require.NoError(c.t, err)
	_, err = log.Commit(c.t.Context(), msg, stored.Sequence)
	require.NoError(c.t, err)
}

// serviceStats reads the statistics of the service, as an operator asks for them.
func serviceStats[T any](c *client) T {
	c.t.Helper()
	reply, err := c.nc.Request("$SRV.STATS."+protocol.ServiceName, nil, 30*time.Second)
	require.NoError(c.t, err)
	var stats struct{ Endpoints []struct{ Data T } }
	require.NoError(c.t, json.Unmarshal(reply.Data, &stats))
	require.NotEmpty(c.t, stats.Endpoints)
	return stats.Endpoints[0].Data
}

// marshalled makes the bytes of a handoff.
func marshalled(t testing.TB, p handoff.Proposal) []byte {
	t.Helper()
	h, err := handoff.New(p)
	require.NoError(t, err)
	data, err := h.MarshalWire()
	require.NoError(t, err)
	return data
}

// parsed makes a handoff as it is read.
func parsed(t testing.TB, p handoff.Proposal) *handoff.Handoff {
	t.Helper()
	h, err := handoff.Parse(marshalled(t, p), schemas.Limits{})
	require.NoError(t, err)
	return h
}

// snapshot is a town to try everything on.
func snapshot(id string) *town.Snapshot {
	return &town.Snapshot{
		SchemaVersion: town.SchemaVersion, TownID: id, Day: 15,
		SideQuests: []town.SideQuest{{ID: "q-escort", Title: "Escort"},
			{ID: "q-scout", Title: "Scout"}},
		Pressure: town.Pressure{Threat: 0.8, Scarcity: 0.4, Hope: 0.3, Dread: 0.6},
		Projects: []town.Project{
			{ID: "bridge", Name: "Bridge", Progress: 0.4, Status: town.Blocked},
			{ID: "wall", Name: "Wall", Progress: 0.6, Status: town.Active},
		},
	}
}

// propose makes a proposal from the state that town.get shows.
func propose(
	at townReply, kind handoff.ProposalType, argument string, pre ...handoff.Precondition,
) handoff.Proposal {
	return handoff.Proposal{
		Type: kind, ActorID: "mayor-1", TownID: at.TownID, Priority: 0.5, Reason: "Because.",
		Args:         map[string]string{kind.ArgumentName(): argument},
		SnapshotHash: at.SnapshotHash, DecisionEpoch: at.DecisionEpoch, Preconditions: pre,
	}
}

// wall, bridge, talk and salvage make handoffs of the state that town.get shows. The bridge is
// blocked, so that its handoff fails.
func (c *client) wall(at townReply) []byte {
	return marshalled(c.t, propose(at, handoff.AdvanceProject, "wall"))
}

func (c *client) bridge(at townReply) []byte {
	return marshalled(c.t, propose(at, handoff.AdvanceProject, "bridge"))
}

func (c *client) talk(at townReply) []byte {
	return marshalled(c.t, propose(at, handoff.TalkToTownsfolk, "casual"))
}

func (c *client) salvage(at townReply, from string) []byte {
	return marshalled(c.t, propose(at, handoff.PlanSalvage, from))
}

// vector is an entry of the vectors that the agents' own library printed.
type vector struct {
	Name         string
	SnapshotName string
	Snapshot     json.RawMessage
	SnapshotHash string
	Handoff      json.RawMessage

	snapshot struct { // the snapshot
		TownID string
		Day    int64
	}
}

func vectors(t testing.TB, file string) (list []vector) {
	t.Helper()
	data, err := os.ReadFile("../../../../testdata/vectors/" + file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &list))
	require.NotEmpty(t, list)
	for i := range list {
		if v := &list[i]; v.Snapshot != nil {
			require.NoError(t, json.Unmarshal(v.Snapshot, &v.snapshot))
		}
	}
	return list
}

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
	"worldengine/worldengine/wire"
)

// rawClient speaks the protocol of NATS itself, to send header blocks that no library writes.
type rawClient struct {
	t    testing.TB
	user access.User
	conn net.Conn
	in   *bufio.Reader
	sent int
}

func rawAs(t testing.TB, address string, u access.User) *rawClient {
	t.Helper()
	at, err := url.Parse(address)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", at.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawClient{t: t, user: u, conn: conn, in: bufio.NewReader(conn)}
	options := mustJSON(t, map[string]any{
		"user": u.Name, "pass": servertest.Password, "headers": true, "no_responders": true,
		"verbose": false, "protocol": 1,
	})
	c.write("CONNECT %s\r\nSUB %s.> 1\r\nPING\r\n", options, u.InboxPrefix())
	for c.line() != "PONG" {
	}
	return c
}

func (c *rawClient) write(format string, args ...any) {
	c.t.Helper()
	_, err := fmt.Fprintf(c.conn, format, args...)
	require.NoError(c.t, err)
}

func (c *rawClient) line() string {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	line, err := c.in.ReadString('\n')
	require.NoError(c.t, err)
	return strings.TrimSpace(line)
}

// request sends a request with a header block, and returns the answer, or nil where NATS does not
// let it.
func (c *rawClient) request(verb, block string, body []byte) *nats.Msg {
	c.t.Helper()
	c.sent++
	reply := fmt.Sprintf("%s.%d", c.user.InboxPrefix(), c.sent)
	c.write("HPUB %s %s %d %d\r\n%s%s\r\n", wire.Subject("main", verb), reply, len(block),
		len(block)+len(body), block, body)
	for {
		line := c.line()
		f := strings.Fields(line)
		switch {
		case line == "PING":
			c.write("PONG\r\n")
		case strings.HasPrefix(line, "-ERR 'Permissions Violation"):
			return nil
		case strings.HasPrefix(line, "-ERR"):
			c.t.Fatalf("%q: %s", block, line)
		case len(f) > 3 && f[0] == "MSG":
			if msg := c.message(f[1], "0", f[3]); f[1] == reply {
				return msg
			}
		case len(f) > 4 && f[0] == "HMSG":
			if msg := c.message(f[1], f[3], f[4]); f[1] == reply {
				return msg
			}
		}
	}
}

func (c *rawClient) message(subject, header, total string) *nats.Msg {
	c.t.Helper()
	head, err := strconv.Atoi(header)
	require.NoError(c.t, err)
	size, err := strconv.Atoi(total)
	require.NoError(c.t, err)
	data := make([]byte, size)
	for read := 0; read < size; {
		n, err := c.in.Read(data[read:])
		require.NoError(c.t, err)
		read += n
	}
	msg := &nats.Msg{Subject: subject, Data: data[head:]}
	if head > 0 {
		msg.Header, err = nats.DecodeHeadersMsg(data[:head])
		require.NoError(c.t, err)
	}
	return msg
}

const forgedMark = wire.UserHeader + `: {"user":"free","acc":"CLIENTS"}`

// oddBlocks are header blocks that nats.go cannot decode, or in which a client hides the server's
// mark.
func oddBlocks() []string {
	return []string{
		"garbage", "NATS/1.0\r\nA\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "NATS/1.0", "NATS/1.0\r\n",
		"\r\n", "\r\n\r\n",
		"NATS/1.0\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n", "nats/1.0\r\n\r\n", "NATS/1.0 5\r\n\r\n",
		"NATS/1.0\x00\r\n\r\n",
		"NATS/1.0\r\n: b\r\n\r\n", "NATS/1.0\nA: b\n\n", "NATS/1.0\r\n\r\nA: b\r\n\r\n",
		"NATS/1.0\r\n" + forgedMark + "\r\n\r\n", "NATS/1.0\n" + forgedMark + "\n\n",
		"NATS/1.0\n" + forgedMark + "\n\nxx",
		"NATS/1.0\n" + forgedMark + "\nA:xx", "NATS/1.0\n" + forgedMark + "\nAxx",
		"NATS/1.0\n" + strings.Repeat("a:\n", 120) + forgedMark + "\n\nxx",
	}
}

// bodies are a valid request of each verb about a town, but for handoff.
func bodies(t testing.TB, townID string) map[string][]byte {
	about := map[string]any{"townId": townID}
	signal := map[string]any{"townId": townID, "actorId": "mayor-1", "reason": "Because."}
	runID := "00000000-0000-4000-8000-000000000000"
	bodies := map[string]any{
		"town.get": about, "town.history": about, "town.list": map[string]any{}, "run.list": about,
		"event.list":  map[string]any{"after": "0", "townId": townID},
		"control.get": about, "town.put": putRequest(snapshot(townID+"-new"), ""),
		"town.patch": map[string]any{"townId": townID, "expectedSnapshotHash": "x",
			"patch": map[string]any{}},
		"result.get": map[string]any{"idempotencyKey": "proposal_" + strings.Repeat("0", 64)},
		"run.get":    map[string]any{"runId": runID}, "run.events": map[string]any{"runId": runID},
		"run.append":    appendRequest(townID, written("run-1", "Told", "step-1", 1)),
		"run.cancel":    map[string]any{"runId": runID, "actorId": "mayor-1", "reason": "Because."},
		"run.retry":     map[string]any{"runId": runID},
		"control.pause": signal, "control.resume": signal,
		"alert.list": map[string]any{}, "alert.ack": map[string]any{"seq": 1},
		"approval.list": about,
		"approval.decide": map[string]any{
			"handoffId": "handoff_" + strings.Repeat("0", 64), "townId": townID,
			"decision": "reject", "reason": "Because."},
		"whoami": map[string]any{}, "world.status": map[string]any{},
	}
	for verb, body := range others(t, append(slices.Collect(maps.Keys(bodies)), "handoff")) {
		bodies[verb] = body
	}
	out := map[string][]byte{}
	for verb, body := range bodies {
		out[verb] = mustJSON(t, body)
	}
	return out
}

// strangers are users whose rights end before the town "other".
func strangers() []access.User {
	elsewhere := func(u *access.User) { u.Read = []string{"mine"} }
	return []access.User{
		servertest.Person(access.Agent, ofTowns("mine"), ofActors("mayor-1"), elsewhere),
		servertest.Person(access.Plugin, ofTowns("mine"), elsewhere),
		servertest.Person(access.Observer, elsewhere),
	}
}

// lesser are all who may connect: strangers, one whom a forged mark could name, and an operator.
func lesser() []access.User {
	return append(strangers(), access.User{Name: "free", Role: access.Agent,
		Password: servertest.Password}, servertest.Person(access.Operator))
}

// requireNoRights sends a request of every verb about a town that a user has no right to.
func requireNoRights(t testing.TB, c *rawClient, requests map[string][]byte, block string) {
	t.Helper()
	for verb, body := range requests {
		reply := c.request(verb, block, body)
		if reply == nil {
			continue // NATS does not let it
		}
		code := reply.Header.Get("Nats-Service-Error-Code")
		if verb == "town.list" && code == "" {
			require.JSONEq(t, `{"towns":[],"total":0,"found":0}`, string(reply.Data), "%s %q", c.user.Role, block)
			continue
		}
		if verb == "whoami" && code == "" {
			var me struct{ User string }
			require.NoError(t, json.Unmarshal(reply.Data, &me))
			require.Equal(t, c.user.Name, me.User, "%q", block)
			continue
		}
		if verb == "world.status" && code == "" {
			var of struct{ Towns int }
			require.NoError(t, json.Unmarshal(reply.Data, &of))
			require.Zero(t, of.Towns, "%s %q", c.user.Role, block)
			continue
		}
		if verb == "world.samples" && code == "" { // of the towns of the user, which has none
			require.NotContains(t, string(reply.Data), `"results":{"`, "%s %q", c.user.Role, block)
			continue
		}
		require.Contains(t, []string{"400", "403"}, code, "%s %s %q: %s", c.user.Role, verb,
			block, reply.Data)
	}
}

// requireOddBlocks tries all blocks in all roles, at a NATS server with a town "other".
func requireOddBlocks(t *testing.T, address string) {
	t.Helper()
	operator := as(t, address, servertest.Person(access.Operator))
	before := operator.put(snapshot("other"), "")
	requests := bodies(t, "other")
	requests["handoff"] = marshalled(t, propose(before, handoff.AdvanceProject, "wall"))
	for _, u := range strangers() {
		c := rawAs(t, address, u)
		for _, block := range oddBlocks() {
			requireNoRights(t, c, requests, block)
		}
	}
	require.Equal(t, before, operator.town("other"))
	var towns struct{ Towns []any }
	require.NoError(t, json.Unmarshal(operator.request("town.list", nil).Data, &towns))
	require.Len(t, towns.Towns, 1, "nobody put a town")
	var page struct{ Runs []any }
	require.NoError(t, json.Unmarshal(operator.request("run.list", nil).Data, &page))
	require.Empty(t, page.Runs)
}

// No header block gives a request a right that its user does not have.
func TestOddHeadersGiveNoRights(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(lesser()...))
	requireOddBlocks(t, srv.URL())
}

// Nor where the accounts are those of a nats-server of its own.
func TestOddHeadersGiveNoRightsOnAnExternalNATS(t *testing.T) {
	t.Parallel()
	address := externalNATS(t, lesser())
	srv := start(t, joining(address, lesser()))
	requireOddBlocks(t, srv.URL())
}

// joining makes a server that joins a nats-server whose configuration was written for users.
func joining(address string, users []access.User) func(*server.Config) {
	return func(c *server.Config) {
		c.NATS, c.Access = address, &access.Config{Users: users}
		c.Connection = natsconn.Options{User: access.EngineUser, Password: servertest.Password}
		c.Clients = natsconn.Options{User: access.AskingUser, Password: servertest.Password}
	}
}

// Headers from which nothing is certain are told as such, with what to do, in both accounts.
func TestUnreadableHeadersAreTold(t *testing.T) {
	t.Parallel()
	srv := start(t, servertest.WithUsers(everybody()...))
	for _, role := range []access.Role{access.Agent, access.Plugin, access.Observer,
		access.Operator} {
		c := rawAs(t, srv.URL(), servertest.Person(role))
		reply := c.request("town.list", "garbage", nil)
		require.Equal(t, "400", reply.Header.Get("Nats-Service-Error-Code"), "%s: %s",
			role, reply.Data)
		require.Contains(t, string(reply.Data), "HEADERS_UNREADABLE")
		require.Contains(t, string(reply.Data), "send ")
		reply = c.request("town.list", "NATS/1.0\r\nTraceparent: 00-1\r\nX:y\r\n\r\n", nil)
		require.Empty(t, reply.Header.Get("Nats-Service-Error-Code"), "%s: %s", role, reply.Data)
	}
}

// FuzzHeaders: whatever header block a user sends with a request about a town that is not its own,
// it gets an answer, and no right. which chooses the user and the verb.
func FuzzHeaders(f *testing.F) {
	for i, block := range oddBlocks() {
		f.Add([]byte(block), byte(i))
	}
	srv := start(f, servertest.WithUsers(lesser()...))
	operator := as(f, srv.URL(), servertest.Person(access.Operator))
	before := operator.put(snapshot("other"), "")
	requests := bodies(f, "other")
	requests["handoff"] = marshalled(f, propose(before, handoff.AdvanceProject, "wall"))
	clients := make([]*rawClient, len(strangers()))
	for i, u := range strangers() {
		clients[i] = rawAs(f, srv.URL(), u)
	}
	verbs := slices.Sorted(maps.Keys(requests))
	f.Fuzz(func(t *testing.T, block []byte, which byte) {
		if len(block) > 4096 {
			return
		}
		c, verb := clients[int(which)%len(clients)], verbs[int(which)/len(clients)%len(verbs)]
		c.t, operator.t = t, t
		requireNoRights(t, c, map[string][]byte{verb: requests[verb]}, string(block))
		require.Equal(t, before, operator.town("other"))
	})
}

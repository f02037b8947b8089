package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/access"
	"worldengine/worldengine/alerts"
	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

func TestStatusOfAWorld(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	text := c.ok("status")
	for _, line := range []string{
		`world +main`, `status +RUNNING`, `applying +0`, `health +good`, `towns +3`,
		`waiting +0 requests`,
		`index +at \d+ of \d+`, `servers +1, version \S+`,
		`alerts +none open`,
		`dead letters +0`, `disk +\d\S* [KM]iB in the streams of the world, before compression`,
		`disk free +\d\S* \SiB of \d\S* \SiB`,
	} {
		assert.Regexp(t, `(?m)^`+line+`$`, text)
	}
	assert.NotContains(t, text, "problem")
	assert.NotContains(t, text, "not known")

	c.ok("pause", "--town", threatened, "--actor", "ada", "--reason", "repairs")
	text = c.ok("status")
	assert.Regexp(t, `(?m)^status +RUNNING$`, text, "the world is not paused")
	assert.Regexp(t, `(?m)^paused town +town-threatened, by ada since \S+: repairs$`, text)
	assert.Regexp(t, `(?m)^health +good$`, text, "a pause is no trouble")
	s := decode[worldStatus](t, c.ok("status", "-o", "json"))
	assert.True(t, s.Healthy)
	assert.Equal(t, "RUNNING", s.Status, "as control.get has it")
	require.Len(t, s.TownsPaused, 1)
	assert.Equal(t, "ada", s.TownsPaused[0].ActorID)
	require.Len(t, s.Servers, 1)
	assert.Positive(t, s.LogEnd)
	assert.Equal(t, "RUNNING", decode[messages.Control](t, c.ok("status", "-o", "raw")).Status)

	table := c.ok("town", "list")
	assert.Regexp(t, `(?m)^TOWN +EPOCH +SNAPSHOT +REVISION +APPLY +PAUSE +PENDING$`, table)
	assert.Regexp(t, `(?m)^town-threatened +16 +[0-9a-f]{64} +\d+ +local +paused +-$`, table)
	assert.Regexp(t, `(?m)^town-quiet +3 +[0-9a-f]{64} +\d+ +local +- +-$`, table)
}

// stats shows what each server has done: results, verbs, and what it has refused.
func TestStatsOfTheServers(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	text := c.ok("stats")
	for _, line := range []string{
		`server +\S+ \S+, since \S+Z`,
		`results +executed 1, rejected 0, stale 0, duplicate 0, failed 0`,
		`in hand +waiting 0, applying 0, held \d+ with \S+ [KM]?i?B`, `refused +none`,
		`alerts +none`, `processor +\S+s`, `VERB +REQUESTS +AVERAGE`, `handoff +1 +\S+s`,
		`town\.put +0 +-`,
	} {
		assert.Regexp(t, `(?m)^`+line+`$`, text)
	}
	all := decode[struct {
		Servers []struct {
			Stats serverStats `json:"stats"`
			Verbs []verbCount `json:"verbs"`
		} `json:"servers"`
	}](t, c.ok("stats", "-o", "json"))
	require.Len(t, all.Servers, 1)
	require.EqualValues(t, 1, all.Servers[0].Stats.Results[handoff.Executed])
	require.Contains(t, all.Servers[0].Stats.Overload.Refused, "bytes")
	require.Len(t, all.Servers[0].Verbs, len(wire.Verbs()))
}

// status exits 1 and says why where something needs attention.
func TestStatusOfAWorldInTrouble(t *testing.T) {
	c := online(t)
	js := c.letters()
	for _, code := range []runevents.AlertCode{runevents.StorageFailed, runevents.StorageRecovered,
		runevents.ApplyInDoubt} {
		alert := runevents.Alert{Code: code, Severity: code.Severity(),
			At: runevents.Timestamp(time.Now()), Message: "Told."}
		_, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: wire.AlertSubject("main", string(code)), Data: []byte(marshal(t, alert)),
		})
		require.NoError(t, err)
	}
	_, err := js.CreateStream(t.Context(), alerts.DeadLetterConfig("main", 1))
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), wire.DeadLetterSubject("main", "RUNEVENTS", "7", "0"),
		[]byte(`{}`))
	require.NoError(t, err)
	got := c.run("status")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^health +needs attention$`, got.out)
	assert.Regexp(t, `(?m)^problem +alert 3, APPLY_IN_DOUBT of \S+: Told\.$`, got.out)
	assert.Regexp(t, `(?m)^problem +1 dead letter: `, got.out)
	assert.Regexp(t, `(?m)^alerts +2 P1, 1 P3 open$`, got.out)
	assert.NotContains(t, got.out, "problem  alert 1, STORAGE_FAILED", "the server has recovered")
	assert.Regexp(t, `^handoffctl: the world main needs attention: `, got.err)
	got = c.run("status", "-o", "json")
	assert.Equal(t, exitFailed, got.status)
	assert.Len(t, decode[worldStatus](t, got.out).Problems, 2)

	assert.Regexp(t,
		`^alert 2, STORAGE_RECOVERED: acknowledged by operator at \S+: -\nalert 3, .* by operator `,
		c.ok("alerts", "ack", "2", "3"))
	got = c.run("status")
	assert.Regexp(t, `(?m)^alerts +1 P1 open, and 2 acknowledged$`, got.out)
	assert.NotContains(t, got.out, "problem  alert", "an acknowledged recovery is one too")
	assert.Equal(t, exitFailed, got.status, "of the dead letter")
}

// The index and the bus of a world are behind if no server has brought them to the end of the log.
func TestWorldStatus_Behind(t *testing.T) {
	t.Parallel()
	at := uint64(5)
	s := worldStatus{LogEnd: 7, Servers: make([]serverStatus, 2)}
	s.Servers[0].Stats.Indexed, s.Servers[1].Stats.Indexed = 7, 3
	assert.Empty(t, s.behind(), "there is no bus")
	s.Servers[1].Stats.BusPublished = &at
	assert.Equal(t, []string{"bus is at 5"}, s.behind())
	s.Servers[0].Stats.Indexed, at = 6, 7
	assert.Equal(t, []string{"index is at 6"}, s.behind())
}

// TestStatus_UrgentAlertBehindOthers: an alert P1 is seen behind more newer ones than a page has, and
// every alert is counted.
func TestStatus_UrgentAlertBehindOthers(t *testing.T) {
	c := online(t)
	js := c.streams()
	raise := func(count int, alert runevents.Alert) {
		alert.Severity, alert.At = alert.Code.Severity(), runevents.Timestamp(time.Now())
		for i := range count {
			alert.RunID = fmt.Sprint("run-", i)
			_, err := js.PublishMsg(t.Context(), &nats.Msg{
				Subject: wire.AlertSubject("main", string(alert.Code)),
				Data:    []byte(marshal(t, alert)),
			})
			require.NoError(t, err)
		}
	}
	const others = maxAlertPage + 5
	raise(mostUrgent+2, runevents.Alert{Code: runevents.ApplyInDoubt, Message: "Look."})
	raise(others, runevents.Alert{Code: runevents.PluginStateInvalid, Message: "Told."})
	got := c.run("status")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^health +needs attention$`, got.out)
	assert.Regexp(t, `(?m)^problem +alert 7, APPLY_IN_DOUBT of \S+: Look\.$`, got.out)
	assert.Regexp(t, `(?m)^problem +2 more alerts P1 of the last hour: `, got.out)
	assert.Regexp(t, fmt.Sprintf(`(?m)^alerts +%d P1, %d P2 open$`, mostUrgent+2, others), got.out)
}

// TestStatus_AlertsThatAreNotKnown: status says what it has not read, and what servers have lost.
func TestStatus_AlertsThatAreNotKnown(t *testing.T) {
	page := strings.Repeat(`{"seq": 9, "id": "x", "code": "PLUGIN_ABSENT", "severity": "P2", `+
		`"at": "2026-02-16T10:00:00.000Z"},`, maxAlertPage)
	c := faked(t, map[string]string{
		"alert.list":  `{"alerts": [` + page[:len(page)-1] + `], "next": 9}`,
		"control.get": `{"status": "RUNNING"}`, "town.list": `{"towns": []}`,
		"whoami": `{"world": "main", "role": "agent", "verbs": ["alert.list"]}`,
	})
	text := c.ok("status")
	assert.Regexp(t, fmt.Sprintf(`(?m)^alerts +%d\+ P2 open$`, mostAlerts), text)
	s := worldStatus{}
	s.Alerts.Lost = 7
	a := &app{out: new(strings.Builder)}
	require.NoError(t, a.printTable(func(w io.Writer) { a.printAlerts(w, &s) }))
	assert.Contains(t, a.out.(*strings.Builder).String(), "7 since the servers started")
}

// What a role may not see is said to be unknown, and is no trouble of the world.
func TestStatusOfEachRole(t *testing.T) {
	as := guarded(t, access.User{Name: "reader", Role: access.Observer, Read: []string{threatened}})
	text := as(access.Agent).ok("status")
	assert.Regexp(t, `(?m)^health +good$`, text)
	for _, line := range []string{
		"alerts: the role agent may not list them",
		"servers: the role agent may not ask for statistics",
		"streams: the role agent may not look at them",
	} {
		assert.Regexp(t, `(?m)^not known +`+line+`$`, text)
	}
	text = as(access.Observer).ok("status")
	assert.Regexp(t, `(?m)^servers +1, version `, text)
	assert.Regexp(t, `(?m)^alerts +none open$`, text)
	assert.NotContains(t, as(access.Operator).ok("status"), "not known")

	text = as("reader").ok("status")
	assert.Regexp(t, `(?m)^not known +pause: FORBIDDEN \(403\): `, text)
	assert.Regexp(t, `(?m)^towns +1$`, text)
	assert.NotRegexp(t, `(?m)^status `, text)
}

// A server of another world on the same NATS may be the first to answer.
func TestStatusWaitsForTheServersOfItsWorld(t *testing.T) {
	c := faked(t, nil)
	nc, err := nats.Connect(c.env["NATS_URL"], nats.UserInfo("agent", "secret"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	_, err = nc.Subscribe("$SRV.STATS."+wire.ServiceName, func(request *nats.Msg) {
		answer := func(world string) {
			_ = request.Respond([]byte(`{"id": "of ` + world +
				`", "endpoints": [{"data": {}}], "metadata": {"` +
				wire.WorldMetadata + `": "` + world + `"}}`))
		}
		answer("other")
		time.AfterFunc(2*answersWait, func() { answer("main") })
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	servers, err := serversOf(t.Context(),
		&client.Client{Conn: nc, World: "main", Timeout: time.Minute})
	require.NoError(t, err)
	require.Len(t, servers, 1)
	assert.Equal(t, "of main", servers[0].ID)
}

// Of several servers the one with the least room counts; little room is a problem of its server.
func TestStatusOfTheDisks(t *testing.T) {
	c := faked(t, nil)
	nc, err := nats.Connect(c.env["NATS_URL"], nats.UserInfo("agent", "secret"))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	disks := []string{`{"freeBytes": 9000000000, "totalBytes": 10737418240, "keepBytes": 1048576}`,
		`{"freeBytes": 4194303, "totalBytes": 107374182400, "keepBytes": 1048576}`, `null`}
	_, err = nc.Subscribe("$SRV.STATS."+wire.ServiceName, func(request *nats.Msg) {
		for i, disk := range disks {
			_ = request.Respond(fmt.Appendf(nil,
				`{"id": "s%d", "endpoints": [{"data": {"disk": %s}}], "metadata": {%q: "main"}}`,
				i, disk, wire.WorldMetadata))
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	s := worldStatus{Unknown: map[string]string{}}
	s.askServers(t.Context(), &client.Client{Conn: nc, World: "main", Timeout: time.Minute},
		string(access.Operator))
	require.Len(t, s.Servers, 3)
	assert.Equal(t, "s1", s.fullest().ID)
	assert.Equal(t, []string{"the disk of the server s1 has 4.0 MiB free of 100.0 GiB, and below " +
		"1.0 MiB it stores nothing"}, s.Problems)
	assert.Empty(t, s.Unknown)

	disks = disks[2:]
	s = worldStatus{Unknown: map[string]string{}}
	s.askServers(t.Context(), &client.Client{Conn: nc, World: "main", Timeout: time.Minute},
		string(access.Operator))
	assert.Nil(t, s.fullest())
	assert.Contains(t, s.Unknown, "disk")
}

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB",
		5 << 30: "5.0 GiB"} {
		assert.Equal(t, want, size(bytes))
	}
}

// status exits 1 where a server judges nothing because its log was replaced.
func TestStatus_LogLost(t *testing.T) {
	c := online(t)
	js := c.streams()
	log, err := js.Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), log.CachedInfo().Config.Name))
	_, err = js.CreateStream(t.Context(), log.CachedInfo().Config)
	require.NoError(t, err)
	require.NoError(t, c.engine.Reach(t.Context()), "which sees the end of the log")
	require.Eventually(t, func() bool { return c.engine.LogLost() != nil }, time.Minute,
		10*time.Millisecond)
	got := c.run("status")
	assert.Equal(t, exitFailed, got.status)
	assert.Regexp(t, `(?m)^problem +the server \S+ judges nothing: the log has lost `, got.out)
	assert.Regexp(t, `(?m)^problem +alert \d+, LOG_LOST of `, got.out)
}

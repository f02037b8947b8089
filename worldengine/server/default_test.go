package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

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
				bodyOf(t, about("t"))))
		}
	}
	for _, subject := range []string{
		"STREAM.DELETE.WORLD_main_LOG", "STREAM.PURGE.WORLD_main_LOG", "STREAM.UPDATE.WORLD_main_LOG",
		"STREAM.MSG.DELETE.WORLD_main_LOG", "STREAM.INFO.WORLD_main_LOG", "STREAM.CREATE.WORLD_other_LOG",
		"CONSUMER.NAMES.WORLD_main_LOG",
	} {
		reply, err := c.nc.Request("$JS.API."+subject, []byte(`{"name":"WORLD_main_LOG"}`), 10*time.Second)
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
	require.Equal(t, messages.Identity{World: "main", Verbs: wire.Verbs()}, whoAmI(w.client))
	live := w.heard(wire.EventsSubject("main", "*"))
	for _, verb := range wire.Verbs() {
		w.request(string(verb), `{}`)
	}
	w.executes(w.talk(w.putTown("town-a")))
	live(2)
	info := w.discover()
	require.Equal(t, []string{"worldengine", "main"}, []string{info.Name, info.Metadata["world"]})
	var verbs []wire.Verb
	for _, e := range info.Endpoints {
		verbs = append(verbs, wire.VerbOf(e.Subject))
	}
	require.ElementsMatch(t, wire.Verbs(), verbs)
	require.Equal(t, int64(1), serviceStats[messages.Stats](w.client).Results[handoff.Executed])

	engines := []string{
		wire.EventSubject("main", "x", "y"), wire.AlertSubject("main", "x"),
		wire.DeadLetterSubject("main", "x", "y", "z"), wire.ApplySubject("main", "x"),
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
	config.NATS = w.srv.URL()
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
	file := w.srv.OperatorKey()
	require.Equal(t, server.OperatorKeyFile, filepath.Base(file))
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
		natsconn.OperatorKeyAddress+strings.TrimPrefix(w.srv.URL(), "nats://")+"\n")
	require.Equal(t, file, w.discover().Metadata[wire.OperatorKeyMetadata])
	w.log()

	stop(t, w.srv)
	for _, open := range []os.FileMode{0o640, 0o604, 0o644, 0o620} {
		require.NoError(t, os.Chmod(file, open))
		_, err := server.Start(t.Context(), configure(w.change...))
		require.ErrorContains(t, err, fmt.Sprintf("%s has mode %04o", file, open))
		require.ErrorContains(t, err, "remove the file")
		require.ErrorContains(t, err, "chmod 600 "+file)
		require.Equal(t, open, mode()) // for somebody to see
	}
	require.NoError(t, os.Remove(file))
	w.start()
	require.NotEqual(t, before, seed())
}

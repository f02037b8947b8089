package server_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/wire"
)

// Without an access file nobody who has not the operator's key reaches a stream: what is published
// on the log's subjects, or asked of JetStream, is as if it were not.
func TestDefaultProtectsTheLog(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t))
	before := c.put(snapshot("town-a"), "")
	js := c.streams()
	log, err := js.Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
	messages := log.CachedInfo().State.LastSeq

	for _, subject := range []string{
		"world.main.log." + wire.TownToken("town-a"), "world.main.log.>",
		"world.main.signal", "$JS.API.STREAM.DELETE.WORLD_main_LOG",
	} {
		_ = c.nc.Publish(subject, []byte(`{"damage":true}`))
	}
	require.NoError(t, c.nc.Flush())
	for _, subject := range []string{
		"STREAM.DELETE.WORLD_main_LOG", "STREAM.PURGE.WORLD_main_LOG",
		"STREAM.UPDATE.WORLD_main_LOG",
		"STREAM.MSG.DELETE.WORLD_main_LOG", "STREAM.INFO.WORLD_main_LOG",
		"STREAM.CREATE.WORLD_other_LOG", "CONSUMER.NAMES.WORLD_main_LOG",
	} {
		reply, err := c.nc.Request("$JS.API."+subject, []byte(`{"name":"WORLD_main_LOG"}`),
			10*time.Second)
		if err == nil {
			require.Contains(t, string(reply.Data), "not enabled", subject)
		} else {
			require.ErrorIs(t, err, nats.ErrNoResponders, subject)
		}
	}
	log, err = js.Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
	require.Equal(t, messages, log.CachedInfo().State.LastSeq)
	require.Equal(t, before, c.town("town-a"))
}

// Nobody passes for the engine towards the others who say not who they are.
func TestDefaultForgesNothing(t *testing.T) {
	t.Parallel()
	srv := start(t)
	listening := connect(t, srv).nc
	listener, err := listening.SubscribeSync(">")
	require.NoError(t, err)
	require.NoError(t, listening.Flush())
	denied := make(chan error, 16)
	nc, err := nats.Connect(srv.URL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription,
		err error) {
		denied <- err
	}))
	require.NoError(t, err)
	defer nc.Close()
	for _, subject := range []string{
		wire.EventSubject("main", "x", "y"), wire.AlertSubject("main", "x"),
		wire.DeadLetterSubject("main", "x", "y", "z"), wire.ApplySubject("main", "x"),
		wire.EventsSubject("main", "x"),
	} {
		require.NoError(t, nc.Publish(subject, []byte("forged")))
		require.NoError(t, nc.Flush())
		select {
		case err := <-denied:
			require.ErrorIs(t, err, nats.ErrPermissionViolation, subject)
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is not denied", subject)
		}
	}
	require.NoError(t, nc.Publish("end", nil))
	for {
		msg, err := listener.NextMsg(20 * time.Second)
		require.NoError(t, err)
		require.NotEqual(t, "forged", string(msg.Data))
		if msg.Subject == "end" {
			return
		}
	}
}

// Every verb is answered without credentials, and what is public is heard.
func TestDefaultAnswersEveryVerb(t *testing.T) {
	t.Parallel()
	srv := start(t)
	c := connect(t, srv)
	live := c.heard(wire.EventsSubject("main", "*"))
	for _, verb := range wire.Verbs() {
		_, err := c.nc.Request(wire.Subject("main", verb), []byte(`{}`), 20*time.Second)
		require.NoError(t, err, verb)
	}
	_, err := c.nc.Request("$SRV.PING.worldengine", nil, 20*time.Second)
	require.NoError(t, err)
	c.send(marshalled(t, propose(c.put(snapshot("town-a"), ""), handoff.TalkToTownsfolk, "casual")))
	live(2)
}

// The operator's key stays the same, is named by discovery, and leads to the streams.
func TestOperatorKey(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(config *server.Config) { config.Data = data }
	first, err := server.Start(t.Context(), configure(in))
	require.NoError(t, err)
	seed, err := os.ReadFile(filepath.Join(data, server.OperatorKeyFile))
	require.NoError(t, err)
	stop(t, first)

	srv := start(t, in)
	info, err := os.Stat(srv.OperatorKey())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	again, err := os.ReadFile(srv.OperatorKey())
	require.NoError(t, err)
	require.Equal(t, strings.Fields(string(seed))[0], strings.Fields(string(again))[0])
	require.Contains(t, string(again), natsconn.OperatorKeyAddress+strings.TrimPrefix(srv.URL(),
		"nats://")+"\n")
	reply, err := connect(t, srv).nc.Request("$SRV.INFO.worldengine", nil, 20*time.Second)
	require.NoError(t, err)
	var told struct{ Metadata map[string]string }
	require.NoError(t, json.Unmarshal(reply.Data, &told))
	require.Equal(t, srv.OperatorKey(), told.Metadata[wire.OperatorKeyMetadata])
	_, err = connect(t, srv).streams().Stream(t.Context(), wire.LogStream("main"))
	require.NoError(t, err)
}

// A key that others may have read is refused, until it is removed or its owner alone may read it.
func TestOperatorKey_ReadableByOthers(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	in := func(config *server.Config) { config.Data = data }
	first, err := server.Start(t.Context(), configure(in))
	require.NoError(t, err)
	stop(t, first)
	file := filepath.Join(data, server.OperatorKeyFile)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o620} {
		require.NoError(t, os.Chmod(file, mode))
		_, err = server.Start(t.Context(), configure(in))
		require.ErrorContains(t, err, fmt.Sprintf("%s has mode %04o", file, mode))
		require.ErrorContains(t, err, "remove the file")
		require.ErrorContains(t, err, "chmod 600 "+file)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm()) // for somebody to see
	}
	seed, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.Remove(file))
	srv := start(t, in)
	again, err := os.ReadFile(srv.OperatorKey())
	require.NoError(t, err)
	require.NotEqual(t, strings.Fields(string(seed))[0], strings.Fields(string(again))[0])
}

// A server that would join one which keeps its streams says what to do.
func TestJoiningADefaultServer(t *testing.T) {
	t.Parallel()
	config := configure()
	config.NATS = start(t).URL()
	_, err := server.Start(t.Context(), config)
	require.ErrorContains(t, err, "--open")
}

// An open server lets everybody do everything, on the data of one that was not open, and the other
// way round.
func TestOpen(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var town townReply
	for i, open := range []bool{true, false, true} {
		srv, err := server.Start(t.Context(), configure(func(config *server.Config) {
			config.Data, config.Open = data, open
		}))
		require.NoError(t, err)
		c := connect(t, srv)
		if i == 0 {
			town = c.put(snapshot("town-a"), "")
		}
		require.Equal(t, town, c.town("town-a"))
		js, err := jetstream.New(c.nc)
		require.NoError(t, err)
		_, err = js.Stream(t.Context(), wire.LogStream("main"))
		require.Equal(t, open, err == nil, "%v", err)
		stop(t, srv)
	}
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

package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
)

// externalNATS starts a nats-server from what WriteNATS writes, with pass for every password.
func externalNATS(t *testing.T, users []access.User) string {
	t.Helper()
	var conf strings.Builder
	require.NoError(t, access.WriteNATS(&conf, "main", users))
	for _, u := range append(users, access.User{Name: access.EngineUser}, access.User{Name: access.AskingUser}) {
		require.Contains(t, conf.String(), "$"+u.PasswordVariable())
	}
	text := conf.String()
	for _, u := range append(users, access.User{Name: access.EngineUser}, access.User{Name: access.AskingUser}) {
		text = strings.ReplaceAll(text, "$"+u.PasswordVariable()+"}", `"`+pass+`"}`)
		text = strings.ReplaceAll(text, "$"+u.PasswordVariable()+",", `"`+pass+`",`)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	options, err := natsserver.ProcessConfigFile(file)
	require.NoError(t, err, text)
	options.Host, options.Port, options.NoSigs, options.NoLog = "127.0.0.1", natsserver.RANDOM_PORT, true, true
	options.JetStream, options.StoreDir = true, t.TempDir()
	ns, err := natsserver.NewServer(options)
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(ns.Shutdown)
	require.True(t, ns.ReadyForConnections(20*time.Second))
	return ns.ClientURL()
}

// What is printed for an external NATS is the same as what the embedded one has: each role may do the
// same, and the engine, which joins it, holds users to their towns.
func TestExternalNATS(t *testing.T) {
	t.Parallel()
	users := everybody()
	url := externalNATS(t, append(users, access.User{Name: "mara", Role: access.Agent, Towns: []string{"mine"}}))
	srv := start(t, byPlugin, func(c *server.Config) {
		c.NATS = url
		c.Connection = natsconn.Options{User: access.EngineUser, Password: pass}
		c.Clients = natsconn.Options{User: access.AskingUser, Password: pass}
		c.Access = &access.Config{Users: append(users, access.User{Name: "mara", Role: access.Agent, Towns: []string{"mine"}})}
		c.Engine.Plugin.Deadline = 200 * time.Millisecond
	})
	requireRoles(t, srv.URL())
	operator := as(t, url, person(access.Operator))
	body := wire(t, propose(operator.put(snapshot("town"), ""), handoff.AdvanceProject, "wall"))
	mara := as(t, url, access.User{Name: "mara"})
	require.Equal(t, "FORBIDDEN", mara.refused("handoff", body).Code)
	o := as(t, url, person(access.Agent)).send(body)
	require.Equal(t, "PLUGIN_UNAVAILABLE", string(o.result.ReasonCode))
}

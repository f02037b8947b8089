package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/natsconn"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
)

// externalNATS starts a nats-server from what WriteNATS writes, with servertest.Password for every
// password.
func externalNATS(t *testing.T, users []access.User) string {
	t.Helper()
	return natsOf(t, configuration(t, users))
}

// What is printed for an external NATS is the same as what the embedded one has: each role may do
// the same, and the engine, which joins it, holds users to their towns.
func TestExternalNATS(t *testing.T) {
	t.Parallel()
	users := everybody()
	url := externalNATS(t, append(users, access.User{Name: "mara", Role: access.Agent,
		Towns: []string{"mine"}}))
	srv := start(t, byPlugin, func(c *server.Config) {
		c.NATS = url
		c.Connection = natsconn.Options{User: access.EngineUser, Password: servertest.Password}
		c.Clients = natsconn.Options{User: access.AskingUser, Password: servertest.Password}
		c.Access = &access.Config{Users: append(users, access.User{Name: "mara", Role: access.Agent,
			Towns: []string{"mine"}})}
	}, askedOnce(time.Second))
	requireRoles(t, srv.URL())
	operator := as(t, url, servertest.Person(access.Operator))
	body := marshalled(t, propose(operator.put(snapshot("town"), ""),
		handoff.AdvanceProject, "wall"))
	mara := as(t, url, access.User{Name: "mara"})
	require.Equal(t, "FORBIDDEN", mara.refused("handoff", body).Code)
	o := as(t, url, servertest.Person(access.Agent)).send(body)
	// Which of the two depends on how fast NATS says that nobody is subscribed;
	// TestNoPluginWithAccounts tells.
	require.Contains(t, []handoff.ReasonCode{apply.ReasonPluginUnavailable,
		apply.ReasonPluginTimeout}, o.result.ReasonCode)
}

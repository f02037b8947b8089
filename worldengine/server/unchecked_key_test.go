package server_test

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/access"
	"worldengine/worldengine/server"
	"worldengine/worldengine/server/servertest"
)

// NATS passes on an "nkey" that it does not check as the name of a user. On a NATS with the printed
// configuration a client that signs in with its own password and another's name as its nkey gets in
// nowhere, and no right of the other.
func TestAClientCannotTakeAnotherNameByItsNKey(t *testing.T) {
	t.Parallel()
	mara := access.User{Name: "mara", Role: access.Agent, Towns: []string{"mine"}}
	users := append(everybody(), mara)
	address := externalNATS(t, users)
	start(t, joining(address, users))
	operator := as(t, address, servertest.Person(access.Operator))
	body := marshalled(t, propose(operator.put(snapshot("town"), ""),
		handoff.AdvanceProject, "wall"))
	require.Contains(t, signInWith(t, address, "mara", "", string(body)), "FORBIDDEN")
	for _, name := range []string{servertest.Person(access.Agent).Name,
		servertest.Person(access.Operator).Name, access.EngineUser} {
		require.Contains(t, signInWith(t, address, "mara", name, string(body)),
			"Authorization Violation", name)
	}
}

// signInWith signs in with a user's password and an nkey that is not checked by the client, sends a
// handoff, and returns the answer to it, or the error of NATS.
func signInWith(t *testing.T, address, user, nkey, body string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "nats://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprintf(conn,
		"CONNECT {\"verbose\":false,\"headers\":true,\"user\":%q,\"pass\":%q,\"nkey\":%q}\r\n"+
			"SUB _INBOX_%s.x 1\r\nPUB worldengine.v1.main.handoff _INBOX_%s.x %d\r\n%s\r\nPING\r\n",
		user, servertest.Password, nkey, user, user, len(body), body)
	require.NoError(t, err)
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, `{"`) || strings.HasPrefix(line, "-ERR") {
			return line
		}
	}
}

// A NATS that would take such a name is not joined.
func TestANATSThatDoesNotCheckKeysIsRefused(t *testing.T) {
	t.Parallel()
	text := configuration(t, everybody())
	unchecked := regexp.MustCompile(`(?m)^\s*\{nkey: .*$`).ReplaceAllString(text, "")
	require.NotEqual(t, text, unchecked)
	_, err := server.Start(t.Context(), configure(joining(natsOf(t, unchecked), everybody())))
	require.ErrorIs(t, err, server.ErrCrossing)
	require.ErrorContains(t, err, "nkey")
}

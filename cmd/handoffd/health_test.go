package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// consoleOf returns the URL that a server has printed for its console.
func consoleOf(t *testing.T, p *program) string {
	t.Helper()
	for _, line := range p.said {
		if url, found := strings.CutPrefix(line, "console   "); found {
			return strings.TrimSuffix(url, "/")
		}
	}
	require.Fail(t, "no console", "%q", p.said)
	return ""
}

func TestHealthOfAServer(t *testing.T) {
	t.Parallel()
	p := launch(t, nil, "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--http", "127.0.0.1:0")
	url := consoleOf(t, p)
	for _, path := range []string{"/livez", "/readyz"} {
		answer, err := http.Get(url + path)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s", body)
		require.Equal(t, "ok\n", string(body))
	}
	at := strings.TrimPrefix(url, "http://")
	health := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		status := run(t.Context(), append([]string{"health", "--http", at}, args...), &out, &errs)
		return status, out.String() + errs.String()
	}
	status, said := health()
	require.Zero(t, status, said)
	require.Equal(t, "ok\n", said)
	status, _ = health("--live")
	require.Zero(t, status)
	p.end(syscall.SIGTERM)
	status, said = health()
	require.Equal(t, 1, status)
	require.Contains(t, said, "the server does not answer")
	status, said = health("--http", "127.0.0.1:0")
	require.Equal(t, 2, status)
	require.Contains(t, said, "HOST:PORT at which the server listens")
}

// A supervisor is told when the server serves, that it lives, and when it stops (sd_notify).
func TestASupervisorIsTold(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { socket.Close() })
	next := func() string {
		buffer := make([]byte, 256)
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(30*time.Second)))
		n, err := socket.Read(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	p := launch(t, []string{"NOTIFY_SOCKET=" + name, "WATCHDOG_USEC=200000"},
		"--listen", "127.0.0.1:0", "--data", t.TempDir())
	require.Equal(t, "READY=1", next())
	require.Equal(t, "WATCHDOG=1", next())
	p.end(syscall.SIGTERM)
	for said := next(); said != "STOPPING=1"; said = next() {
		require.Equal(t, "WATCHDOG=1", said)
	}
}

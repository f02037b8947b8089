//go:build linux

package handoffctl

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"worldengine/runevents"
)

// pseudoTerminal opens a pseudo terminal and returns its end for a program, and what gives all that
// was written to it once that end is closed.
func pseudoTerminal(t *testing.T) (program *os.File, shown func() string) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	fd := int(screen.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	var text bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&text, screen) // it ends with an error when the program's end is closed
	}()
	return program, func() string {
		_ = program.Close()
		<-read
		return strings.ReplaceAll(text.String(), "\r\n", "\n")
	}
}

// runOnTerminal runs a command line whose output is a terminal.
func (c *cli) runOnTerminal(args ...string) (status int, out string) {
	c.t.Helper()
	program, shown := pseudoTerminal(c.t)
	var said bytes.Buffer
	status = c.exec(c.t.Context(), strings.NewReader(""), program, &said, args...)
	require.Empty(c.t, said.String())
	return status, shown()
}

// uncoloured is a text without the colours.
func uncoloured(text string) string {
	for _, t := range []tone{plain, good, warn, bad} {
		text = strings.ReplaceAll(text, string(t), "")
	}
	return text
}

// A status has the colour of its meaning on a terminal: a run that completed with a rejection is not
// green. In a pipe there is no colour, and ids and payloads are whole.
func TestTerminal_Colours(t *testing.T) {
	c := online(t)
	executed := c.file(c.handoff())
	rejected := c.file(string(talk(t, newTown(t, "nowhere", 1))))
	_, out := c.runOnTerminal("send", executed)
	assert.Contains(t, out, "status   \x1b[32mexecuted (EXECUTED)\x1b[39m\n")
	_, out = c.runOnTerminal("send", executed)
	assert.Contains(t, out, "status        \x1b[33mduplicate (DUPLICATE_HANDOFF)\x1b[39m\n")
	_, out = c.runOnTerminal("send", rejected)
	assert.Contains(t, out, "status   \x1b[31mrejected (UNKNOWN_TOWN)\x1b[39m\n")

	piped := c.ok("run", "list")
	assert.NotContains(t, piped, "\x1b")
	_, out = c.runOnTerminal("run", "list")
	assert.Regexp(t, `\x1b\[31mCOMPLETED\x1b\[39m .* \x1b\[31mrejected UNKNOWN_TOWN\x1b\[39m\n`,
		out)
	assert.Regexp(t,
		`\x1b\[33mCOMPLETED\x1b\[39m .* \x1b\[33mduplicate DUPLICATE_HANDOFF\x1b\[39m\n`, out)
	assert.Regexp(t, `\x1b\[32mCOMPLETED\x1b\[39m .* \x1b\[32mexecuted EXECUTED\x1b\[39m\n`, out)
	lines := strings.Split(strings.TrimSuffix(uncoloured(out), "\n"), "\n")
	for _, line := range lines[1:] { // a column begins where its heading does
		for _, heading := range []string{"ARRIVED", "STATUS", "ACTOR", "ASKED", "OUTCOME"} {
			at := strings.Index(lines[0], heading)
			assert.Equal(t, "  ", line[at-2:at], "%s of %s", heading, line)
			assert.NotEqual(t, " ", line[at:at+1], "%s of %s", heading, line)
		}
	}
	runID := strings.Fields(strings.Split(piped, "\n")[1])[0]
	require.Len(t, runID, 36)
	assert.Contains(t, out, "\n"+runID[:8]+"  ")
	assert.NotContains(t, out, runID)

	events := c.ok("run", "events", runID)
	assert.NotContains(t, events, "…")
	_, out = c.runOnTerminal("run", "events", runID)
	assert.Contains(t, out, "…")

	watched := c.ok("watch", "--since", "1h", "--count", "1")
	assert.Regexp(t, `  [0-9a-f-]{36}  1  RunStarted`, watched)
	_, out = c.runOnTerminal("watch", "--since", "1h", "--type", "RunCompleted", "--count", "3")
	assert.Equal(t, []int{1, 1, 1}, []int{
		strings.Count(out, "\x1b[32mRunCompleted"), strings.Count(out, "\x1b[33mRunCompleted"),
		strings.Count(out, "\x1b[31mRunCompleted"),
	}, out)
}

func TestApp_EventColours(t *testing.T) {
	t.Parallel()
	without, colours := &app{}, &app{colours: true}
	for _, test := range []struct {
		event   runevents.EventType
		payload string
		want    tone
	}{
		{"RunStarted", "{}", plain}, {"RunCompleted", "{}", good},
		{"RunCompleted", `{"status":"executed"}`, good},
		{"RunCompleted", `{"status":"rejected"}`, bad},
		{"RunCompleted", `{"status":"stale"}`, warn},
		{"RunCompleted", `7`, good}, {"RunFailed", `{"status":"failed"}`, bad},
		{"StepFailed", "{}", bad}, {"RunCancelled", "{}", bad}, {"Told", "{}", plain},
	} {
		e := &runevents.Record{}
		e.EventType, e.Payload = test.event, []byte(test.payload)
		require.Equal(t, cell(fmt.Sprintf("%s%-14s%s", test.want, test.event, plain)),
			colours.eventType(e), test.payload)
		require.Equal(t, cell(fmt.Sprintf("%-14s", test.event)), without.eventType(e))
	}
	env := func(string) string { return "" }
	require.False(t, colourful(new(strings.Builder), env))
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, colourful(file, env), "not a terminal")
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer device.Close()
	require.False(t, colourful(device, env), "a device, and no terminal")
	program, shown := pseudoTerminal(t)
	require.True(t, colourful(program, env))
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		require.False(t, colourful(program, func(asked string) string {
			return map[string]string{name: value}[asked]
		}), name)
	}
	shown()
}

// Long work says on a terminal how far it is, and takes the line away; elsewhere it says nothing.
func TestTerminal_Progress(t *testing.T) {
	c := online(t)
	require.Equal(t, exitOK, c.pipe(c.handoff(), "send", "-").status)
	for _, test := range []struct {
		command []string
		wants   string
	}{
		{[]string{"fsck"}, `^(\rlog sequence \d+ of \d+, \d+ %)+\rlog sequence \d+ of \d+, 100 %\r +\r$`},
		{[]string{"backup", filepath.Join(t.TempDir(), "one")},
			`^(\rWORLD_main_\w+: \S+ K?i?B *)+\r +\r(.*\r +\r)*$`},
	} {
		program, shown := pseudoTerminal(t)
		var out bytes.Buffer
		status := c.exec(t.Context(), strings.NewReader(""), &out, program, test.command...)
		assert.Regexp(t, test.wants, shown())
		assert.Equal(t, exitOK, status)
		assert.NotContains(t, out.String(), "\r")
	}
	c.ok("fsck")
	c.ok("backup", filepath.Join(t.TempDir(), "another"))
}

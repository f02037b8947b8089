package systemtest_test

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/fsck"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// publishRaw stores a message with a raw header block in the log, and returns its sequence.
func (w *checkedWorld) publishRaw(subject, header, body string) uint64 {
	w.t.Helper()
	at, err := url.Parse(w.srv.URL())
	require.NoError(w.t, err)
	conn, err := net.Dial("tcp", at.Host)
	require.NoError(w.t, err)
	defer conn.Close()
	end := w.logEnd()
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\n"+
		"HPUB %s %d %d\r\n%s%s\r\nPING\r\n", subject, len(header), len(header)+len(body), header, body)
	require.NoError(w.t, err)
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		require.NoError(w.t, err)
		require.NotContains(w.t, line, "-ERR")
		if strings.HasPrefix(line, "PONG") {
			break
		}
	}
	require.Eventually(w.t, func() bool { return w.logEnd() == end+1 }, 20*time.Second,
		10*time.Millisecond)
	return end + 1
}

// undecodable are header blocks that NATS stores and no client can decode.
var undecodable = []string{"NATS/1.0\r\nno colon\r\n\r\n", "garbage"}

// A log message with undecodable headers is a finding and a dead letter, and blocks nothing: on the
// subject of a town, of a missing town, and on the others. Its body may be a tampered record.
func TestFsck_UndecodableHeaders(t *testing.T) {
	for i, subject := range []string{
		wire.LogSubject("main", "t"), wire.LogSubject("main", "stranger"),
		wire.RefusedSubject("main", "t"), wire.RunSubject("main", "run-1"),
		wire.SignalSubject("main"), wire.LogSubject("main", "t"),
	} {
		t.Run(fmt.Sprint(i, subject), func(t *testing.T) {
			w := newOpenWorld(t, worldengine.Config{Bus: true})
			w.talk(w.found("t"))
			other := w.found("other")
			body := "{}"
			if i == 5 {
				body = string(w.last(w.log(), subject).Data)
			}
			bad := w.publishRaw(subject, undecodable[i%2], body)
			w.followed()
			letter := wire.DeadLetterSubject("main", wire.EventStream("main"), fmt.Sprint(bad), "0")
			w.last(w.stream(wire.DeadLetterStream("main")), letter)
			require.Eventually(t, func() bool {
				_, err := w.stream(wire.AlertStream("main")).GetLastMsgForSubject(t.Context(),
					wire.AlertSubject("main", string(runevents.EventBusDeliveryFailed)))
				return err == nil
			}, 30*time.Second, 10*time.Millisecond)
			requireFound := func(report *fsck.Report) {
				require.False(t, report.Clean())
				require.True(t, slices.ContainsFunc(report.Findings, func(f fsck.Finding) bool {
					return f.Stream == wire.LogStream("main") && f.Sequence == bad &&
						f.Subject == subject
				}), "%+v", report.Findings)
			}
			requireFound(w.fsck(fsck.Options{}))
			if subject == wire.LogSubject("main", "t") {
				_, err := w.engine.Town(t.Context(), "t")
				require.ErrorIs(t, err, commitlog.ErrTownDamaged)
			}
			list, err := w.engine.List(t.Context(),
				worldengine.TownQuery{TownList: messages.TownList{Limit: 10}})
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(list.Towns, func(s messages.ListedTown) bool {
				return s.TownID == "other"
			}))

			w.close()
			w.open() // a server starts on such a log, and the bus goes on
			w.talk(other)
			w.followed()
			report := w.fsck(fsck.Options{Repair: true})
			require.NotEmpty(t, report.Findings)
			if i == 5 {
				require.True(t, report.Damaged[0].LosesCommit, "a record may be a commit")
				report = w.fsck(fsck.Options{Repair: true, MendTowns: true})
			}
			if subject == wire.LogSubject("main", "t") {
				require.Len(t, report.Repair.TownsMended, 1)
				_, err := w.engine.Town(t.Context(), "t")
				require.NoError(t, err)
				return
			}
			requireFound(report)
		})
	}
}

package systemtest_test

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/core/runlog"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server/servertest"
	"worldengine/worldengine/internal/store/commitlog/logtest"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// storied makes a world with one of everything that is told over several records, and returns its
// log:
//
//	pending 0, 1, 2  three attempts of a handoff, told of by run 0 to 3 and closed by run 4; handoff 0
//	control 0, 1     a pause of the town, for which a handoff waits: run 5, closed by run 6, opened by run 7;
//	                 others append to it meanwhile; pending 3, 4, 5, told of by run 8 to 11, closed by
//	                 run 12; handoff 1, which fails in every attempt
//	control 2, 3     a pause of the world, for which one waits (run 13) and is cancelled (run 14, signal 1);
//	                 signal 0 is refused
//	handoff 2        fails by the rules at once; refused 0 is its duplicate, refused 1 is stale
//	pending 6        is being applied at the end, when others append to its run and control 4 pauses
//	                 its town: run 15
func storied(t *testing.T) []*jetstream.RawStreamMsg {
	config := outside()
	config.Retry.Deadline = 10 * time.Minute // the last attempt lasts to the end of the story
	w := newCheckedWorld(t, config)
	g := &game{release: make(chan struct{})}
	w.plugin(g.answer)
	first := w.found("t")
	w.idle()
	w.send(proposalBy("later", first), handoff.Executed)
	w.signal(machine.SignalPause, "t")
	w.idle()
	waiting := w.later(proposalBy("refused", w.state("t")))
	id := w.pausedRun(2)
	w.append("t", id, runlog.Event{EventType: "Noted", StepID: "build"})
	w.signal(machine.SignalResume, "t")
	w.result(waiting, handoff.Failed)

	w.signal(machine.SignalPause, "")
	w.refusedSignal(engine.Signal{Kind: machine.SignalPause})
	w.idle()
	cancelled := w.later(proposalBy("anybody", w.state("t")))
	id = w.pausedRun(3)
	_, err := w.Engine().Signals().Handle(t.Context(),
		engine.Signal{Kind: machine.SignalCancel, RunID: id})
	require.NoError(t, err)
	require.ErrorIs(t, (<-cancelled).err, machine.ErrRunCancelled)
	w.signal(machine.SignalResume, "")

	w.idle()
	w.again(w.send(towntest.Proposal(w.state("t"), handoff.AdvanceProject, "gate"), handoff.Failed))
	w.send(proposalBy("anybody", first), handoff.Stale)
	w.idle()
	applied := w.later(proposalBy("waits", w.state("t")))
	w.append("t", w.pending("t"), runlog.Event{EventType: "Noted", StepID: "build"})
	w.signal(machine.SignalPause, "t")
	w.clean()
	log := w.messages()
	close(g.release)
	w.signal(machine.SignalResume, "t")
	w.result(applied, handoff.Executed)
	return log
}

// pausedRun returns the paused run of those that have messages of their own, once there are so
// many.
func (w *checkedWorld) pausedRun(count int) string {
	w.t.Helper()
	for _, id := range w.runs(count) {
		run, err := w.Engine().Runs().Get(w.t.Context(), id)
		require.NoError(w.t, err)
		if run.Status == runevents.RunStatusPaused {
			return id
		}
	}
	require.Fail(w.t, "no run is paused")
	return ""
}

// nth returns the index of the nth record of a kind.
func nth(t *testing.T, log []*jetstream.RawStreamMsg, kind string, n int) int {
	t.Helper()
	for i, msg := range log {
		if msg.Header.Get("Kind") == kind {
			if n--; n < 0 {
				return i
			}
		}
	}
	require.Fail(t, "no such record", "%s %d", kind, n)
	return 0
}

// cutBetween returns the text between two others, the first of each.
func cutBetween(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	require.True(t, ok, from)
	inner, _, ok := strings.Cut(rest, to)
	require.True(t, ok, to)
	return inner
}

func TestFsck_StoriedLog(t *testing.T) {
	log := storied(t)
	found, counts, open := FsckLog("main", log)
	require.Empty(t, found)
	require.Equal(t, fsck.Counts{
		Messages: int64(len(log)), Settings: 1, Towns: 1, Puts: 1, Accepted: 3, Refused: 2,
		Pending: 3, Attempts: 4, Controls: 5, Signals: 2, RunRecords: 16, Appended: 2,
	}, counts)
	require.Equal(t, 1, open, "of the runs only the one that is not over is remembered")
	// Any rest of a log has no findings: however much of the town's history, and however many
	// records of runs, have expired.
	ofTown := func(i int) bool { return log[i].Subject == "world.main.log.t" }
	ofRuns := func(i int) bool { return strings.HasPrefix(log[i].Subject, "world.main.run.") }
	for history := range log {
		if history > 0 && !ofTown(history-1) {
			continue // the same is left as before
		}
		for expired := range log {
			if expired > 0 && !ofRuns(expired-1) {
				continue
			}
			var left logMessages
			for i, msg := range log {
				if !(i < history && ofTown(i)) && !(i < expired && ofRuns(i)) {
					left = append(left, msg)
				}
			}
			found, _, _ := FsckLog("main", left)
			require.Empty(t, found, "the town from %d, runs from %d", history, expired)
		}
	}
}

// logMessages is a log.
type logMessages = []*jetstream.RawStreamMsg

// tampering changes a log, and returns it with the sequence of the wrong message, 0 if one is
// missing.
type tampering func(*testing.T, logMessages) (logMessages, uint64)

// replace replaces a text, the first of its kind, in the nth record of a kind.
func replace(kind string, n int, old, new string) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		changed := strings.Replace(string(msg.Data), old, new, 1)
		require.NotEqual(t, string(msg.Data), changed, "%s", msg.Data)
		msg.Data = []byte(changed)
		return log, msg.Sequence
	}
}

// header gives the nth record of a kind another header.
func header(kind string, n int, name, value string) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		msg.Header[name] = []string{value}
		return log, msg.Sequence
	}
}

// swap replaces a member of a record by another record's.
func swap(kind string, n int, name, next string, from string, m int) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		return replace(kind, n, member(t, log[nth(t, log, kind, n)].Data, name, next),
			member(t, log[nth(t, log, from, m)].Data, name, next))(t, log)
	}
}

// remove takes a record away.
func remove(kind string, n int) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		i := nth(t, log, kind, n)
		return slices.Delete(log, i, i+1), 0
	}
}

// idOf gives the first event of the nth record of a kind the id of another record's.
func idOf(from string, m int, kind string, n int) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		first := func(kind string, n int) string {
			return cutBetween(t, string(log[nth(t, log, kind, n)].Data), `"events":[{"eventId":"`, `"`)
		}
		return replace(kind, n, first(kind, n), first(from, m))(t, log)
	}
}

// subject brings the nth record of a kind onto another subject.
func subject(kind string, n int, to string) tampering {
	return func(t *testing.T, log logMessages) (logMessages, uint64) {
		msg := log[nth(t, log, kind, n)]
		msg.Subject = to
		return log, msg.Sequence
	}
}

// Every rule about several records, broken at one place.
func TestFsck_TamperedRuns(t *testing.T) {
	requireTampered(t, storied(t), map[string]tampering{
		"no ids": func(t *testing.T, log logMessages) (logMessages, uint64) {
			ids := member(t, log[nth(t, log, "pending", 6)].Data, "eventIds", "accepted")
			return replace("pending", 6, ids, `"eventIds":[]`)(t, log)
		},
		"a conclusion that leaves it": func(t *testing.T, log logMessages) (logMessages, uint64) {
			pending := member(t, log[nth(t, log, "control", 4)].Data, "pending", "snapshot")
			return replace("handoff", 2, `"townId":"t"`, `"townId":"t",`+pending)(t, log)
		},
		"the conclusion of another run": func(t *testing.T, log logMessages) (logMessages, uint64) {
			const from = `"run":{"runId":"`
			own := cutBetween(t, string(log[nth(t, log, "handoff", 0)].Data), from, `"`)
			other := cutBetween(t, string(log[nth(t, log, "handoff", 1)].Data), from, `"`)
			return replace("handoff", 0, from+own, from+other)(t, log)
		},
		"a pause of the world that is paused": func(
			t *testing.T, log logMessages,
		) (logMessages, uint64) {
			first, second := log[nth(t, log, "control", 2)], log[nth(t, log, "control", 3)]
			second.Data, second.Header["Run-Id"] = first.Data, first.Header["Run-Id"]
			return log, second.Sequence
		},
	})
}

var rewrite = flag.Bool("rewrite", false, "write the findings of testdata/tampered anew")

// aTamper is a case of testdata/tampered: its name, and the lines of its change.
var aTamper = regexp.MustCompile(`(?m)^([^ +=~x#>-].*|[a-z][^ ].*)\n((?:[-+=~x#>] .*\n)*)`)

// parseTampering reads a change of the nth record of a kind: - and + replace a text in it, = sets a header, >
// its subject, ~ takes members from another record, # the first event's id, and x removes it.
func parseTampering(t *testing.T, change string) tampering {
	t.Helper()
	first, more, _ := strings.Cut(strings.TrimSuffix(change, "\n"), "\n")
	at, rest, _ := strings.Cut(first, ": ")
	words, from := strings.Fields(at), strings.Fields(rest)
	kind, n := words[1], int(numbers(t, words[2:])[0])
	switch words[0] {
	case "-":
		return replace(kind, n, rest, strings.TrimPrefix(more, "+ "))
	case "=":
		name, value, _ := strings.Cut(rest, ": ")
		return header(kind, n, name, value)
	case ">":
		return subject(kind, n, rest)
	case "~":
		return swap(kind, n, from[0], from[2], from[4], int(numbers(t, from[5:])[0]))
	case "#":
		return idOf(from[0], int(numbers(t, from[1:])[0]), kind, n)
	}
	return remove(kind, n)
}

// requireTampered checks that fsck finds each change of a log. testdata/tampered has the cases under
// the name of the test, a special one by its name alone, and the findings about the changed message
// and about others.
func requireTampered(t *testing.T, log logMessages, special map[string]tampering) {
	t.Helper()
	file := filepath.Join("testdata", "tampered", t.Name()+".golden")
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	var said strings.Builder
	for _, c := range aTamper.FindAllStringSubmatch(string(want), -1) {
		tamper := special[c[1]]
		delete(special, c[1])
		if c[2] != "" {
			tamper = parseTampering(t, c[2])
		}
		require.NotNil(t, tamper, c[1])
		changed, seq := tamper(t, copiesOf(log))
		found, _, _ := FsckLog("main", changed)
		said.WriteString(c[0])
		for _, f := range found {
			at := "the message"
			if f.Sequence != seq {
				at = "another"
			}
			fmt.Fprintf(&said, "  %s: %s\n", at, f.What)
			require.NotZero(t, f.Sequence)
			require.NotEqual(t, f.Want, f.Got)
		}
		require.NotEmpty(t, found, c[1])
	}
	require.Empty(t, special, "%s does not name these", file)
	schemastest.Golden(t, file, said.String(), *rewrite)
}

// FsckLog checks messages as the log of a world, as Run does, and counts them. Nothing leaves the
// log meanwhile.
func FsckLog(world string, log []*jetstream.RawStreamMsg) ([]fsck.Finding, fsck.Counts, int) {
	var all []fsck.Finding
	l := fsck.NewLogChecker(world, func(seq uint64) (*jetstream.RawStreamMsg, error) {
		i := slices.IndexFunc(log, func(m *jetstream.RawStreamMsg) bool { return m.Sequence == seq })
		return log[i], nil
	})
	for _, raw := range log {
		found, _ := l.Check(raw) // the function above returns no error
		all = append(all, found...)
	}
	return all, l.Counts, len(l.Runs)
}

// forge stores a message in the log like an engine, guarded by its subject's last one, but with any
// contents. It returns its sequence.
func (w *checkedWorld) forge(subject string, header nats.Header, body string) uint64 {
	w.t.Helper()
	guard := uint64(0)
	if last, err := w.log().GetLastMsgForSubject(w.t.Context(), subject); err == nil {
		guard = last.Sequence
	}
	msg := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: []byte(body)}
	for name, values := range header {
		if !strings.HasPrefix(name, "Nats-") {
			msg.Header[name] = slices.Clone(values)
		}
	}
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(guard, 10))
	msg.Subject = logtest.AppendSubject(w.t, w.Streams(), subject)
	ack, err := w.Streams().PublishMsg(w.t.Context(), msg)
	require.NoError(w.t, err)
	return ack.Sequence
}

// member returns a member of a record, with its name.
func member(t *testing.T, body []byte, name, next string) string {
	t.Helper()
	from := strings.Index(string(body), `"`+name+`":`)
	to := strings.Index(string(body), `,"`+next+`":`)
	require.True(t, 0 < from && from < to, "%s", body)
	return string(body[from:to])
}

// notStepped is the finding about a record that does not follow from the town before it.
const notStepped = "the record is not the one that its input makes of the town"

// Each fault of a single message is found: one that is forged, or that a defect wrote.
func TestFsck_TamperedMessages(t *testing.T) {
	log := newCheckedWorld(t, engine.Config{}).populate().messages()
	requireTampered(t, log, nil)
}

// publishRaw stores a message with a raw header block in the log, and returns its sequence.
func (w *checkedWorld) publishRaw(subject, header, body string) uint64 {
	w.t.Helper()
	at, err := url.Parse(w.URL())
	require.NoError(w.t, err)
	conn, err := net.Dial("tcp", at.Host)
	require.NoError(w.t, err)
	defer conn.Close()
	end := w.logEnd()
	subject = logtest.AppendSubject(w.t, w.Streams(), subject)
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
	require.Eventually(w.t, func() bool { return w.logEnd() == end+1 }, time.Minute,
		10*time.Millisecond)
	return end + 1
}

// undecodable are header blocks that NATS stores and no client can decode.
var undecodable = []string{"NATS/1.0\r\nno colon\r\n\r\n", "garbage"}

// A log message with undecodable headers is a finding and a dead letter, and blocks nothing: on the
// subject of a town, of a missing town, and on the others. Its body may be a tampered record.
func TestFsck_UndecodableHeaders(t *testing.T) {
	for i, subject := range []string{
		layout.LogSubject("main", "t"), layout.LogSubject("main", "stranger"),
		layout.RefusedSubject("main", "t"), layout.RunSubject("main", "run-1"),
		layout.SignalSubject("main"), layout.LogSubject("main", "t"),
	} {
		t.Run(fmt.Sprint(i, subject), func(t *testing.T) {
			w := newCheckedWorld(t, engine.Config{Outbox: engine.OutboxConfig{Enabled: true}}, servertest.Open)
			w.talk(w.found("t"))
			other := w.found("other")
			body := "{}"
			if i == 5 {
				body = string(w.last(w.log(), subject).Data)
			}
			bad := w.publishRaw(subject, undecodable[i%2], body)
			w.followed()
			letter := layout.DeadLetterSubject("main", wire.EventStream("main"), fmt.Sprint(bad), "0")
			w.last(w.Stream(layout.DeadLetterStream("main")), letter)
			require.Eventually(t, func() bool {
				_, err := w.Stream(layout.AlertStream("main")).GetLastMsgForSubject(t.Context(),
					wire.AlertSubject("main", string(runevents.EventBusDeliveryFailed)))
				return err == nil
			}, 30*time.Second, 10*time.Millisecond)
			requireFound := func(report *fsck.Report) {
				require.False(t, report.Clean())
				require.True(t, slices.ContainsFunc(report.Findings, func(f fsck.Finding) bool {
					return f.Stream == layout.LogStream("main") && f.Sequence == bad &&
						f.Subject == subject
				}), "%+v", report.Findings)
			}
			requireFound(w.fsck(fsck.Options{}))
			if subject == layout.LogSubject("main", "t") {
				_, err := w.Engine().Towns().Get(t.Context(), "t")
				require.ErrorIs(t, err, records.ErrTownDamaged)
			}
			list, err := w.Engine().Towns().List(t.Context(),
				engine.TownQuery{TownList: messages.TownList{Limit: 10}})
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(list.Towns, func(s messages.ListedTown) bool {
				return s.TownID == "other"
			}))

			w.Stop()
			w.Start() // a server starts on such a log, and the bus goes on
			w.talk(other)
			w.followed()
			report := w.fsck(fsck.Options{Repair: true})
			require.NotEmpty(t, report.Findings)
			if i == 5 {
				require.True(t, report.Damaged[0].LosesCommit, "a record may be a commit")
				report = w.fsck(fsck.Options{Repair: true, RepairTowns: true})
			}
			if subject == layout.LogSubject("main", "t") {
				require.Len(t, report.Repair.TownsRepaired, 1)
				_, err := w.Engine().Towns().Get(t.Context(), "t")
				require.NoError(t, err)
				return
			}
			requireFound(report)
		})
	}
}

package systemtest_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/core/town"
	"worldengine/worldengine/internal/core/town/towntest"
	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/internal/engine/feed"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/store/fsck"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// TestDamage plays testdata/damage, each scenario on a server of its own: the messages of a log, the
// damage that it suffers, and the answers to clients, of fsck and of a repair. N is a sequence in the log, or
// counts the handoffs of a town from 1. Inputs:
//
//	> world history=N: the server of the scenario has this setting
//	> town NAME…: makes towns · > get TOWN · > put TOWN: its state once more
//	> talk|fail TOWN COUNT: handoffs that are executed, or fail · > send TOWN: one more, and its answer
//	> again TOWN N: sends a handoff again · > run TOWN N: gets its run · > result TOWN N: gets its result; the
//	  handoff 0 was never sent
//	> stray TOWN [HEADER=VALUE] TEXT: another program publishes to the town's subject
//	> bare N: publishes a message again, without its headers
//	> flip N…: a bit of messages on the disk, while no server runs · > behead N: loses the messages before N
//	> forget: the server starts without its index · > restart [history=N] · > worldfile TOWN…: starts with a
//	  world file of a town's state, for these towns
//	> backup: from now on, a world that was restored from a backup of this one
//	> log · > towns · > runs · > commits [TOWN]: the messages of the log, and the lists of clients
//	> alert CODE: waits for it; which towns are damaged by the status
//	> fsck [repair] [mend-towns]
func TestDamage(t *testing.T) {
	t.Parallel()
	schemastest.PlayEach(t, "testdata/damage/*.txt", *rewrite, func(t *testing.T) func(string) []string {
		s := &damage{checkedWorld: &checkedWorld{t: t}, towns: map[string]*sentTo{}, runs: map[string]string{}}
		return func(input string) []string { return s.input(strings.Fields(input)) }
	})
}

// damage is a scenario.
type damage struct {
	*checkedWorld
	config engine.Config
	towns  map[string]*sentTo
	runs   map[string]string // handoffs by their runs: "TOWN N"
}

// sentTo is a town, with the state that the rules make, the handoffs that were sent to it, and their
// results by key.
type sentTo struct {
	state   town.State
	sent    []*handoff.Handoff
	runs    []string
	results map[string]jsontext.Value
}

func (s *damage) input(words []string) []string {
	verb, args := words[0], words[1:]
	if verb == "world" {
		require.Nil(s.t, s.World, "it has started")
		s.set(&s.config, args)
		return nil
	}
	if s.World == nil {
		s.World = newServer(s.t, s.config)
	}
	switch verb {
	case "town":
		for _, id := range args {
			s.towns[id] = &sentTo{state: s.found(id), results: map[string]jsontext.Value{}}
		}
		return nil
	case "restart":
		s.Restart(func(c *server.Config) { s.set(&c.Engine, args) })
		return nil
	case "worldfile":
		s.Restart(func(c *server.Config) { c.Worlds.Towns = s.worldFile(args) })
		return nil
	case "forget":
		s.Stop()
		require.NoError(s.t, os.RemoveAll(s.indexDir()))
		s.Start()
		return nil
	case "flip":
		s.flipInLog(numbers(s.t, args)...)
		return nil
	case "behead":
		s.behead(numbers(s.t, args)[0])
		return nil
	case "bare":
		msg, err := s.log().GetMsg(s.t.Context(), numbers(s.t, args)[0])
		require.NoError(s.t, err)
		s.publish(msg.Subject, nil, msg.Data)
		return nil
	case "stray":
		header := nats.Header{}
		if name, value, ok := strings.Cut(args[1], "="); ok {
			header.Set(name, value)
		}
		s.publish(layout.LogSubject("main", wire.TownToken(args[0])), header, []byte(args[len(args)-1]))
		return nil
	case "backup":
		return s.backUp()
	case "fsck":
		return s.check(args)
	case "alert":
		return s.awaitAlert(runevents.AlertCode(args[0]))
	case "log":
		return s.logLines()
	case "runs":
		return []string{strings.Join(s.runList(), ", ")}
	case "towns":
		return []string{strings.Join(s.townList(), " ")}
	case "commits":
		return s.commits(args...)
	}
	return s.client(verb, args)
}

// client makes a request of a client.
func (s *damage) client(verb string, args []string) []string {
	at, n := s.towns[args[0]], 0
	if len(args) > 1 {
		n = int(numbers(s.t, args[1:])[0])
	}
	switch verb {
	case "talk", "fail":
		want := map[string]handoff.ReasonCode{"talk": handoff.ReasonExecuted, "fail": town.ProjectBlocked}[verb]
		for range n {
			require.Equal(s.t, string(want), s.send(args[0], s.next(at, verb)))
		}
		return nil
	case "send":
		return []string{s.send(args[0], s.next(at, "talk"))}
	case "again":
		return []string{s.send(args[0], at.sent[n-1])}
	case "result":
		key := "proposal_" + strings.Repeat("0", 64)
		if n > 0 {
			key = at.sent[n-1].IdempotencyKey
		}
		data, code := s.ask(wire.ResultGet, messages.ResultGet{TownID: args[0], IdempotencyKey: key})
		if code == "" {
			var reply struct {
				Result jsontext.Value `json:"result"`
			}
			require.NoError(s.t, json.Unmarshal(data, &reply))
			require.Equal(s.t, string(at.results[key]), string(reply.Result))
			code = "the same result"
		}
		return []string{string(code)}
	case "run":
		_, code := s.ask(wire.RunGet, map[string]string{"runId": at.runs[n-1]})
		_, events := s.ask(wire.RunEvents, map[string]string{"runId": at.runs[n-1]})
		require.Equal(s.t, code, events)
		return []string{cmp.Or(string(code), "known")}
	case "get":
		_, code := s.ask(wire.TownGet, map[string]string{"townId": args[0]})
		return []string{cmp.Or(string(code), "known")}
	case "put":
		_, code := s.ask(wire.TownPut, messages.TownPut{Snapshot: jsontext.Value(at.state.Canonical), Expected: at.state.Hash})
		return []string{cmp.Or(string(code), "done")}
	}
	require.Fail(s.t, "no such input", verb)
	return nil
}

// set sets the settings that the words name.
func (s *damage) set(config *engine.Config, words []string) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		require.Equal(s.t, "history", name)
		config.HistoryPerTown = int64(numbers(s.t, []string{value})[0])
		config.Storage.DiscardHistory = config.HistoryPerTown > 0
	}
}

func numbers(t *testing.T, words []string) (all []uint64) {
	t.Helper()
	for _, word := range words {
		n, err := strconv.ParseUint(word, 10, 64)
		require.NoError(t, err)
		all = append(all, n)
	}
	return all
}

// ask makes a request until it has an answer that is not about the moment, and returns that or its error
// code.
func (s *damage) ask(verb wire.Verb, request any) ([]byte, wire.Code) {
	s.t.Helper()
	body, isBody := request.([]byte)
	if !isBody {
		var err error
		body, err = json.Marshal(request)
		require.NoError(s.t, err)
	}
	for until := time.Now().Add(30 * time.Second); ; {
		reply, err := s.Operator().Request(wire.Subject("main", verb), body, time.Minute)
		require.NoError(s.t, err)
		if reply.Header.Get(wire.ErrorCodeHeader) == "" {
			return reply.Data, ""
		}
		var failed struct {
			Error struct {
				Code wire.Code `json:"code"`
			} `json:"error"`
		}
		require.NoError(s.t, json.Unmarshal(reply.Data, &failed))
		passing := []wire.Code{wire.CodeInProgress, wire.CodeIndexBehind}
		if !slices.Contains(passing, failed.Error.Code) || time.Now().After(until) {
			return nil, failed.Error.Code
		}
	}
}

// next makes a handoff of the town's state, unlike those before.
func (s *damage) next(at *sentTo, verb string) *handoff.Handoff {
	p := towntest.Proposal(at.state, handoff.TalkToTownsfolk, "casual")
	if verb == "fail" {
		p = towntest.Proposal(at.state, handoff.AdvanceProject, "gate")
	}
	p.Priority = float64(len(at.sent)) / 1000
	h, err := handoff.New(p)
	require.NoError(s.t, err)
	return h
}

// send sends a handoff, and returns its reason or an error code. A handoff that is executed again has the
// same result.
func (s *damage) send(townID string, h *handoff.Handoff) string {
	s.t.Helper()
	at := s.towns[townID]
	body, err := h.MarshalWire()
	require.NoError(s.t, err)
	data, code := s.ask(wire.Handoff, body)
	if code != "" {
		return string(code)
	}
	result, err := handoff.ParseResult(data, schemas.Limits{})
	require.NoError(s.t, err)
	if result.Status == handoff.Duplicate || result.Status == handoff.Stale {
		return string(result.ReasonCode)
	}
	if before := at.results[h.IdempotencyKey]; before != nil {
		require.Equal(s.t, string(before), string(data))
		return string(result.ReasonCode) + " with the same result"
	}
	receipt, err := s.Engine().Receipts().Get(s.t.Context(), townID, h.IdempotencyKey)
	require.NoError(s.t, err)
	at.sent, at.runs = append(at.sent, h), append(at.runs, receipt.RunID)
	at.results[h.IdempotencyKey] = data
	s.runs[receipt.RunID] = fmt.Sprint(townID, " ", len(at.sent))
	if result.Status == handoff.Executed {
		at.state = s.nextState(at.state, h)
	}
	return string(result.ReasonCode)
}

// worldFile has the state of the first town, for each of them.
func (s *damage) worldFile(ids []string) []byte {
	var states [][]byte
	for _, id := range ids {
		snapshot := *s.towns[ids[0]].state.Snapshot
		snapshot.TownID = id
		state := town.NewState(&snapshot)
		if s.towns[id] == nil {
			s.towns[id] = &sentTo{state: state, results: map[string]jsontext.Value{}}
		}
		states = append(states, state.Canonical)
	}
	return slices.Concat([]byte("["), bytes.Join(states, []byte(",")), []byte("]"))
}

func (s *damage) backUp() (lines []string) {
	m := s.movedByBackup()
	for _, u := range m.Unreadable {
		lines = append(lines, fmt.Sprintf("message %d of %s is unreadable", u.Sequence, u.Town))
	}
	for _, left := range m.Dropped {
		lines = append(lines, fmt.Sprintf("left out: %s before %d", left.Subject, left.Before))
	}
	return lines
}

// logLines has a line for each row of messages of one kind in the log.
func (s *damage) logLines() (lines []string) {
	info, err := s.log().Info(s.t.Context())
	require.NoError(s.t, err)
	first, last := info.State.FirstSeq, ""
	for seq := first; seq <= info.State.LastSeq+1; seq++ {
		kind := ""
		msg, err := s.log().GetMsg(s.t.Context(), seq)
		switch {
		case seq > info.State.LastSeq:
		case errors.Is(err, jetstream.ErrMsgNotFound):
			kind = "not delivered"
		default:
			require.NoError(s.t, err)
			kind = strings.TrimPrefix(msg.Subject, "world.main.") + " " + msg.Header.Get("Kind")
		}
		if kind == last {
			continue
		}
		if last != "" {
			lines = append(lines, fmt.Sprintf("%s: %s", span(first, seq-1), last))
		}
		first, last = seq, kind
	}
	return lines
}

func span(from, to uint64) string {
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprint(from, "-", to)
}

func (s *damage) runList() (names []string) {
	for _, id := range s.pages(index.Filter{}, 1) {
		names = append(names, s.runs[id])
	}
	return names
}

func (s *damage) townList() (ids []string) {
	listed, err := s.Engine().Towns().List(s.t.Context(), engine.TownQuery{TownList: messages.TownList{Limit: 100}})
	require.NoError(s.t, err)
	for _, at := range listed.Towns {
		ids = append(ids, at.TownID)
	}
	return ids
}

// commits reads event.list, of all towns or of one.
func (s *damage) commits(towns ...string) []string {
	if len(towns) == 0 {
		towns = nil
	}
	page, err := s.Engine().Feed().Read(s.t.Context(), feed.Query{Limit: 1000, Towns: towns})
	require.NoError(s.t, err)
	line := fmt.Sprintf("%d to the cursor %d", len(page.Commits), page.Cursor)
	for _, commit := range page.Commits {
		if bytes.Contains(commit, []byte(`"damaged":true`)) {
			line += fmt.Sprintf(", %s", commit)
		}
	}
	if page.Gap {
		line += ", after a gap"
	}
	return []string{line}
}

// awaitAlert waits for an alert, and says of which towns the log is damaged.
func (s *damage) awaitAlert(code runevents.AlertCode) []string {
	var townID string
	require.Eventually(s.t, func() bool {
		page, err := s.Engine().Alerts().List(s.t.Context(), messages.AlertList{Limit: 10})
		require.NoError(s.t, err)
		i := slices.IndexFunc(page.Alerts, func(a messages.Alert) bool { return a.Code == code })
		if i >= 0 {
			townID = page.Alerts[i].TownID
		}
		return i >= 0
	}, time.Minute, 10*time.Millisecond)
	damaged, err := s.Engine().Watcher().DamagedTowns(s.t.Context(), func(string) bool { return true })
	require.NoError(s.t, err)
	return []string{fmt.Sprintf("about %s; damaged: %s", townID, strings.Join(damaged, " "))}
}

// check runs fsck. The report has neither ids nor times, and of advice the command to run.
func (s *damage) check(args []string) []string {
	report := s.fsck(fsck.Options{Repair: slices.Contains(args, "repair"),
		RepairTowns: slices.Contains(args, "mend-towns")})
	lines := findings(report)
	if report.Repair != nil {
		for _, d := range report.Repair.TownsRepaired {
			lines = append(lines, fmt.Sprintf("%s is put back to %d", d.Town, d.Restores))
		}
		lines = append(lines, "after the repair:")
		lines = append(lines, findings(report.Repair.After)...)
	}
	return lines
}

func findings(report *fsck.Report) (lines []string) {
	for _, f := range report.Findings {
		line := fmt.Sprintf("%s %d: %s", cmp.Or(f.Town, f.Subject), f.Sequence, f.What)
		if f.Stream != layout.LogStream("main") {
			line = f.Stream + " " + line
		}
		if f.Want != "" || f.Got != "" {
			line += fmt.Sprintf("; want %s, got %s", f.Want, f.Got)
		}
		lines = append(lines, line)
	}
	for _, d := range report.Damaged {
		line := fmt.Sprintf("%s is damaged, readable up to %d; lost:", d.Town, d.Restores)
		for _, lost := range d.Lost {
			line += fmt.Sprint(" ", lost.Sequence)
			if lost.Delivered {
				line += " (delivered)"
			}
		}
		if d.LosesCommit {
			line += "; a commit may be among them"
		}
		lines = append(lines, line+"; "+remedy.FindString(d.Advice))
	}
	for _, note := range report.Notes {
		fact, _, _ := strings.Cut(note, ". ")
		lines = append(lines, "note: "+fact)
	}
	if n := report.Counts.Repairs; n > 0 {
		lines = append(lines, fmt.Sprintf("%d repairs put %d messages aside", n, report.Counts.PutAside))
	}
	if report.FindingCount == 0 && len(report.Damaged) == 0 {
		lines = append([]string{"clean"}, lines...)
	}
	for i := range lines {
		lines[i] = random.ReplaceAllString(lines[i], "…")
	}
	return lines
}

// random are ids, hashes and times.
var random = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f-]{36}|20[0-9-]{8}T[0-9:.]+Z`)

var remedy = regexp.MustCompile(`handoffctl fsck( --[a-z-]+)*|restore a backup`)

package index

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/wire"
)

// message is a message of a memoryLog.
type message struct {
	seq     uint64
	subject string
	header  nats.Header
}

// memoryLog is a Source of messages in memory.
type memoryLog struct {
	mu         sync.Mutex
	messages   []message
	end        uint64
	count      uint64 // answer of Messages
	minHistory uint64 // see Limits
	down       error
}

func (l *memoryLog) End(context.Context) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end, l.down
}

func (l *memoryLog) Messages(context.Context) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count, l.down
}

// Limits says that the log may have forgotten everything, unless it keeps a least number.
func (l *memoryLog) Limits() Limits { return Limits{MinHistory: l.minHistory} }

func (l *memoryLog) EachAfter(_ context.Context, seq uint64, v visit) (uint64, error) {
	l.mu.Lock()
	messages, end, down := l.messages, l.end, l.down
	l.mu.Unlock()
	for _, m := range messages {
		if m.seq > seq {
			if err := v(m.seq, m.subject, m.header); err != nil {
				return 0, err
			}
		}
	}
	return end, down
}

// visit is called by EachAfter with each message.
type visit = func(seq uint64, subject string, header nats.Header) error

// watchedLog is a log whose EachAfter is a function's.
type watchedLog struct {
	Source
	each func(ctx context.Context, seq uint64, v visit) (uint64, error)
}

func (l *watchedLog) EachAfter(ctx context.Context, seq uint64, v visit) (uint64, error) {
	return l.each(ctx, seq, v)
}

// append stores a message.
func (l *memoryLog) append(subject string, header nats.Header) message {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end++
	l.messages = append(l.messages, message{l.end, subject, header})
	return l.messages[len(l.messages)-1]
}

// forget drops the messages that drop names, except the newest of each subject, as a log does.
func (l *memoryLog) forget(drop func(m message) bool) {
	newest := map[string]uint64{}
	for _, m := range l.messages {
		newest[m.subject] = m.seq
	}
	l.lose(func(m message) bool { return newest[m.subject] != m.seq && drop(m) })
}

// lose drops the messages that drop names, as damage does.
func (l *memoryLog) lose(drop func(m message) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var kept []message
	for _, m := range l.messages {
		if !drop(m) {
			kept = append(kept, m)
		}
	}
	l.messages = kept
}

// open opens an index of a log in a directory, and waits for the end of the log.
func open(t testing.TB, source Source, dir string, change ...func(*Config)) *Index {
	t.Helper()
	config := Config{World: "w", Source: source, Dir: dir, Logger: slog.New(slog.DiscardHandler),
		tidyInterval: 100 * time.Millisecond}
	for _, c := range change {
		c(&config)
	}
	ix, err := Open(t.Context(), config)
	require.NoError(t, err)
	_, err = ix.CatchUp(t.Context())
	require.NoError(t, err)
	return ix
}

// rowsOf closes an index and returns its file.
func rowsOf(t testing.TB, ix *Index) string {
	t.Helper()
	require.NoError(t, ix.Close())
	body, err := os.ReadFile(filepath.Join(ix.config.Dir, "rows"))
	require.NoError(t, err)
	return string(body)
}

// rebuilt returns the file of an index that is built from a log.
func rebuilt(t testing.TB, source Source) string {
	t.Helper()
	return rowsOf(t, open(t, source, t.TempDir()))
}

// generator makes random messages of a few towns, keys and runs.
type generator struct {
	*rand.Rand
	at int64
}

func newGenerator(seed uint64) *generator {
	return &generator{rand.New(rand.NewPCG(seed, 1)), 1_700_000_000_000}
}

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) message() (subject string, header nats.Header) {
	g.at += g.Int64N(5000) - 1000
	town := fmt.Sprintf("t%d", g.IntN(5))
	run := fmt.Sprintf("run-%d", g.IntN(40))
	header = nats.Header{}
	set := func(name, value string) {
		if value != "" {
			header.Set(name, value)
		}
	}
	set(layout.AtHeader, runevents.Timestamp(time.UnixMilli(g.at)))
	set(layout.ActorHeader, pick(g, "", "ann", "b%20b"))
	set(layout.TypeHeader, pick(g, "", "PROJECT_ADVANCE", "TOWNSFOLK_TALK"))
	set(layout.ResultHeader, pick(g, "", "executed EXECUTED", "stale STALE_DECISION_EPOCH",
		"failed PLUGIN_TIMEOUT"))
	set(layout.RunSeqsHeader, pick(g, "", "1-4", "5-9", "x"))
	set(layout.RunEventTypesHeader, pick(g, "", "RunQueued", "RunStarted", "RunStarted,RunCompleted",
		"RunFailed", "RunPaused,RunResumed"))
	set(layout.ClosingHeader, pick(g, "", "true"))
	switch g.IntN(8) {
	case 0:
		set(layout.KindHeader, "control")
		return layout.PauseSubject("w"), header
	case 1, 2:
		set(layout.KindHeader, pick(g, "run", "events"))
		set(wire.RunIDHeader, pick(g, "", run))
		set(layout.TownTokenHeader, pick(g, "", town))
		set(layout.TownHeader, town)
		return layout.RunSubject("w", run), header
	case 3:
		set(layout.KindHeader, "refused")
		set(wire.RunIDHeader, run)
		set(layout.KeyHeader, fmt.Sprintf("key-%d", g.IntN(20)))
		return layout.RefusedSubject("w", pick(g, town, layout.UnknownTownToken)), header
	}
	set(layout.KindHeader, pick(g, "handoff", "handoff", "pending", "put", "run", "asked",
		"decided"))
	set(wire.RunIDHeader, pick(g, "", run, run))
	set(layout.KeyHeader, pick(g, "", fmt.Sprintf("key-%d", g.IntN(20))))
	for _, name := range []string{layout.PendingHeader, layout.PausedHeader, layout.AskedHeader} {
		set(name, pick(g, "", "true", "false"))
	}
	set(layout.RemovedHeader, pick(g, "", "", "", "true"))
	return layout.LogSubject("w", town), header
}

// randomLog returns a log of n random messages, of which some are gone.
func randomLog(g *generator, n int) *memoryLog {
	l := &memoryLog{}
	for range n {
		l.append(g.message())
	}
	return l
}

// executed is the header of an executed handoff.
func executed(key, run string, at int64) nats.Header {
	return nats.Header{
		layout.KindHeader: {string(machine.KindConcluded)}, layout.KeyHeader: {key},
		wire.RunIDHeader: {run}, layout.AtHeader: {runevents.Timestamp(time.UnixMilli(at))},
		layout.ResultHeader: {"executed EXECUTED"}, layout.RunSeqsHeader: {"1-9"},
		layout.RunEventTypesHeader: {"RunStarted,RunCompleted"}, layout.TypeHeader: {"PROJECT_ADVANCE"},
		layout.ActorHeader: {"ann"},
	}
}

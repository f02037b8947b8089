package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/internal/store/records"
)

// simMessage is a message of a simulated log.
type simMessage struct {
	subject string
	header  nats.Header
	data    []byte
	seq     uint64
	stored  time.Time
	gone    bool // the log keeps it no longer

	decode  sync.Once
	decoded *machine.Record
	wrong   error
}

// record is the message's record, decoded once for readers: a simulation asks the last messages of
// its towns at each step.
func (m *simMessage) record() (*machine.Record, error) {
	m.decode.Do(func() { m.decoded, m.wrong = records.Read(m.data) })
	return m.decoded, m.wrong
}

func (m *simMessage) raw() *jetstream.RawStreamMsg {
	return &jetstream.RawStreamMsg{Subject: m.subject, Sequence: m.seq, Header: m.header,
		Data: m.data, Time: m.stored}
}

// simLog is a log's JetStream in memory: guards, the duplicate window, reading.
type simLog struct {
	messages []*simMessage
	window   map[string]uint64 // the sequences of the Nats-Msg-Ids of late
	// unguarded is a planted bug: guards are not checked.
	unguarded bool
	// drops is another: messages of this kind are acknowledged and not stored.
	drops machine.Kind
	// keeps is how many messages of each subject engines can read; 0 for all.
	keeps   int
	history map[string][]*simMessage // by subject, the oldest first; nil if all are
	// appended is called with each message; nil for nothing.
	appended func(*simMessage)
}

// errSimGuard is JetStream's answer to a guard that does not hold.
var errSimGuard = &jetstream.APIError{Code: 400,
	ErrorCode: jetstream.JSErrCodeStreamWrongLastSequence}

func (l *simLog) store(msg *nats.Msg, now time.Time) (*jetstream.PubAck, error) {
	if l.drops != "" && msg.Header.Get(layout.KindHeader) == string(l.drops) {
		return &jetstream.PubAck{Sequence: uint64(len(l.messages) + 1)}, nil
	}
	if guard := msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader); guard != "" && !l.unguarded {
		subject := msg.Header.Get(jetstream.ExpectedLastSubjSeqSubjHeader)
		if subject == "" {
			subject = msg.Subject
		}
		at := uint64(0)
		if last := l.last(subject); last != nil {
			at = last.seq
		}
		if guard != strconv.FormatUint(at, 10) {
			return nil, errSimGuard
		}
	}
	id := msg.Header.Get(jetstream.MsgIDHeader)
	if seq, known := l.window[id]; known && id != "" &&
		now.Sub(l.messages[seq-1].stored) < commitlog.DuplicateWindow {
		return &jetstream.PubAck{Sequence: seq, Duplicate: true}, nil
	}
	m := &simMessage{subject: msg.Subject, header: nats.Header{},
		data: append([]byte{}, msg.Data...), stored: now}
	for name, values := range msg.Header {
		m.header[name] = append([]string{}, values...)
	}
	m.seq = uint64(len(l.messages) + 1)
	l.messages = append(l.messages, m)
	l.keep(m)
	if l.appended != nil {
		l.appended(m)
	}
	if id != "" {
		l.window[id] = m.seq
	}
	return &jetstream.PubAck{Sequence: m.seq}, nil
}

// keep discards the oldest message of a subject if a new one is too many.
func (l *simLog) keep(m *simMessage) {
	if l.keeps == 0 {
		return
	}
	kept := append(l.history[m.subject], m)
	if len(kept) > l.keeps {
		kept[0].gone, kept = true, kept[1:]
	}
	l.history[m.subject] = kept
}

func (l *simLog) find(seq uint64) *simMessage {
	if seq < 1 || seq > uint64(len(l.messages)) || l.messages[seq-1].gone {
		return nil
	}
	return l.messages[seq-1]
}

func (l *simLog) last(subject string) *simMessage {
	for i := len(l.messages) - 1; i >= 0; i-- {
		if l.messages[i].subject == subject {
			return l.messages[i]
		}
	}
	return nil
}

func (l *simLog) next(subject string, from uint64) *simMessage {
	for i := max(from, 1) - 1; i < uint64(len(l.messages)); i++ {
		if m := l.messages[i]; !m.gone && (subject == ">" || m.subject == subject) {
			return m
		}
	}
	return nil
}

// simOp is an operation of an engine that waits for its turn.
type simOp struct {
	name   string
	engine *simEngine
	run    func(fault error) // one of the simFaults, or nil
	turn   chan struct{}
}

// simFaults are the faults of an operation, each the error that the engine gets. errSimLost means that the operation
// is not done, errSimUnanswered that only its answer is lost. With errSimGuard a leader that does not know yet that it
// was deposed refuses the guard of an append, and the other leader stores it.
var simFaults = map[string]error{"lost": errSimLost, "unanswered": errSimUnanswered, "refused": errSimGuard}

var (
	errSimLost       = errors.New("simulation: no answer")
	errSimUnanswered = errors.New("simulation: no answer to what is done")
	errSimDead       = errors.New("simulation: the engine was killed") // the error of a killed engine's operations
)

// simAsker is the key of a context with the caller, if that is not the usual one.
type simAsker struct{}

// simStore is the log from one engine's view: every operation waits for its turn, and it or its
// answer may be lost.
type simStore struct {
	sim    *sim
	engine *simEngine
}

// simDo waits for the operation's turn.
func simDo[T any](
	ctx context.Context, s *sim, engine *simEngine, name string, operate func() (T, error),
) (value T, err error) {
	if asker, ok := ctx.Value(simAsker{}).(string); ok {
		name += ", " + asker
	}
	if engine.alive.Err() != nil {
		return value, errSimDead
	}
	op := &simOp{name: name, engine: engine, turn: make(chan struct{})}
	op.run = func(fault error) {
		if engine.dead.Load() {
			err = errSimDead
			return
		}
		if err = ctx.Err(); err != nil { // it was not sent
			return
		}
		if fault != errSimLost {
			value, err = operate()
		}
		if fault != nil {
			var none T
			value, err = none, fault
		}
	}
	s.wait(op)
	return value, err
}

// guardedAppend begins the name of an append with a guard, before its subject.
const guardedAppend = "publish "

func (s *simStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	name := guardedAppend
	if msg.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == "" {
		name = "publish unguarded "
	}
	return simDo(ctx, s.sim, s.engine, name+msg.Subject, func() (*jetstream.PubAck, error) {
		return s.sim.log.store(msg, time.Now())
	})
}

func (s *simStore) read(
	ctx context.Context, name string, find func() *simMessage,
) (*jetstream.RawStreamMsg, error) {
	return simDo(ctx, s.sim, s.engine, name, func() (*jetstream.RawStreamMsg, error) {
		if m := find(); m != nil {
			return m.raw(), nil
		}
		return nil, nil
	})
}

func (s *simStore) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return s.read(ctx, fmt.Sprint("at ", seq), func() *simMessage { return s.sim.log.find(seq) })
}

func (s *simStore) Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return s.read(ctx, "last "+subject, func() *simMessage { return s.sim.log.last(subject) })
}

func (s *simStore) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	return s.read(ctx, "next "+subject, func() *simMessage { return s.sim.log.next(subject, from) })
}

func (s *simStore) End(ctx context.Context) (uint64, error) {
	return simDo(ctx, s.sim, s.engine, "end",
		func() (uint64, error) { return uint64(len(s.sim.log.messages)), nil })
}

// simSource is the log for the index of one engine.
type simSource struct {
	index.Source
	sim      *sim
	opened   bool
	readings int
}

// openIndex opens the index of an engine, in memory.
func (s *sim) openIndex(engine *simEngine) *index.Index {
	log := &commitlog.Log{World: "main", Store: &simStore{s, engine}, FixedHistory: int64(s.log.keeps)}
	x, err := index.Open(context.WithValue(context.Background(), simAsker{}, "its index"), index.Config{
		World: "main", Source: &simSource{Source: index.LogSource(log), sim: s},
		Logger: slog.New(slog.DiscardHandler),
		OnWoken: func(ctx context.Context) {
			_, _ = simDo(ctx, s, engine, "woken", func() (struct{}, error) { return struct{}{}, nil })
		},
	})
	if err != nil {
		panic(err)
	}
	return x
}

// End answers Open at once: nothing would give it a turn.
func (s *simSource) End(ctx context.Context) (uint64, error) {
	if !s.opened {
		s.opened = true
		return uint64(len(s.sim.log.messages)), nil
	}
	return s.Source.End(ctx)
}

// EachAfter reads the log. Each third reading is from a replica that is behind, and comes less far.
func (s *simSource) EachAfter(
	ctx context.Context, seq uint64, visit func(uint64, string, nats.Header) error,
) (uint64, error) {
	until := uint64(math.MaxUint64)
	if s.readings++; s.readings%3 == 0 {
		until = seq + 1
	}
	upTo, err := s.Source.EachAfter(ctx, seq,
		func(seq uint64, subject string, header nats.Header) error {
			if s.sim.alone || s.sim.skips && seq%5 == 0 || seq > until {
				return nil
			}
			return visit(seq, subject, header)
		})
	if err == nil { // those who wait for the last message go on before the one who reads
		_, err = s.Source.End(ctx)
	}
	if !s.sim.believes {
		upTo = min(upTo, until)
	}
	return upTo, err
}

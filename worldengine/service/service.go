// Package service puts an engine on NATS: bytes in, bytes out.
//
// Every verb is an endpoint of one micro service named worldengine, on the subject
// worldengine.v1.<world>.<verb>, in one queue group: requests are shared between all instances of
// a world. Payloads are JSON. A handoff is answered with an execution-result.v1 and the header
// Run-Id; an error reply carries the headers Nats-Service-Error-Code and Nats-Service-Error, the
// body {"error": {"code", "message", "details": [{"path", "message"}]}}, and, where asking again
// makes sense (429 and 503), Retry-After-Ms.
//
// Handoffs are decoded side by side and submitted in the order of their arrival. Everything is
// bounded: what does not fit is answered with 429 at once.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/access"
)

// Defaults of what operators may set.
const (
	// DefaultMaxHandoff is the largest handoff in bytes that is read.
	DefaultMaxHandoff = 256 << 10
	// DefaultMaxSnapshot is the largest town.put in bytes that is read.
	DefaultMaxSnapshot = 512 << 10
	// maxRequest is the largest of the other requests in bytes that is read.
	maxRequest = 64 << 10
)

// Config says how a service works. The zero value of every member means its documented default.
type Config struct {
	// World is the world's name; worldengine.DefaultWorld.
	World string
	// Version is the service's version, a semantic version; "0.0.0".
	Version string
	// MaxHandoff and MaxSnapshot bound a handoff and a town.put in bytes; DefaultMaxHandoff and
	// DefaultMaxSnapshot.
	MaxHandoff, MaxSnapshot int
	// Intake is how many handoffs may be on their way to their town's queue; 1,024.
	Intake int
	// Readers is how many of the other requests are worked on at once, and Waiting how many may
	// wait for that; 16 and 4,096.
	Readers, Waiting int
	// Access knows for which towns and actors the users may speak; nil where everybody may for all.
	Access *access.Directory
	// Logger is where trouble is told; slog.Default.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	set := func(v *int, or int) {
		if *v == 0 {
			*v = or
		}
	}
	set(&c.MaxHandoff, DefaultMaxHandoff)
	set(&c.MaxSnapshot, DefaultMaxSnapshot)
	set(&c.Intake, 1024)
	set(&c.Readers, 16)
	set(&c.Waiting, 4096)
	if c.World == "" {
		c.World = worldengine.DefaultWorld
	}
	if c.Version == "" {
		c.Version = "0.0.0"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Service is an engine on NATS. Serve starts it, Stop ends it.
type Service struct {
	config   Config
	engine   *worldengine.Engine
	requests *nats.Conn
	replies  *nats.Conn

	decode  chan *arrival // to be decoded, by any worker
	ordered chan *arrival // the same, in the order of their arrival
	reads   chan func()
	workers sync.WaitGroup

	ctx  context.Context // of the reads; done when Stop has waited for them
	stop context.CancelFunc
}

// arrival is a handoff on its way from the wire to its town's queue.
type arrival struct {
	reply   string
	data    []byte
	rights  access.Rights
	parsed  chan struct{} // closed when handoff and err are set
	handoff *handoff.Handoff
	err     error
}

// Serve answers requests that arrive on the connection requests, which is the service's own and is
// closed by Stop. Answers go out on replies, which stays open.
func Serve(requests, replies *nats.Conn, engine *worldengine.Engine, config Config) (*Service, error) {
	config = config.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{
		config: config, engine: engine, requests: requests, replies: replies,
		decode:  make(chan *arrival, config.Intake),
		ordered: make(chan *arrival, config.Intake),
		reads:   make(chan func(), config.Waiting),
		ctx:     ctx, stop: cancel,
	}
	for range runtime.GOMAXPROCS(0) {
		s.workers.Go(s.decodeHandoffs)
	}
	s.workers.Go(s.submitHandoffs)
	for range config.Readers {
		s.workers.Go(s.read)
	}
	if err := s.addEndpoints(); err != nil {
		s.stopWorkers()
		return nil, err
	}
	// What was subscribed must be known to the server before anybody is told that we serve.
	if err := requests.Flush(); err != nil {
		s.stopWorkers()
		return nil, fmt.Errorf("service: the endpoints cannot be announced: %w", err)
	}
	return s, nil
}

func (s *Service) addEndpoints() error {
	svc, err := micro.AddService(s.requests, micro.Config{
		Name:        worldengine.ServiceName,
		Version:     s.config.Version,
		Description: "Authoritative world engine: takes execution-handoff.v1, answers execution-result.v1",
		Metadata:    map[string]string{"world": s.config.World},
		// The same for every endpoint: what the engine has done, and where it stands.
		StatsHandler: func(*micro.Endpoint) any { return s.engine.Stats() },
	})
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	group := svc.AddGroup(worldengine.SubjectPrefix(s.config.World))
	add := func(name, verb string, handle func(micro.Request)) {
		if addErr := group.AddEndpoint(name, micro.HandlerFunc(handle),
			micro.WithEndpointSubject(verb)); addErr != nil {
			err = errors.Join(err, fmt.Errorf("service: endpoint %s: %w", verb, addErr))
		}
	}
	add("handoff", "handoff", s.takeHandoff)
	add("town-get", "town.get", s.takeRead(s.townGet))
	add("town-list", "town.list", s.takeRead(s.townList))
	add("town-put", "town.put", s.takePut)
	add("town-patch", "town.patch", s.takePatch)
	add("result-get", "result.get", s.takeRead(s.resultGet))
	add("run-get", "run.get", s.takeRead(s.runGet))
	add("run-list", "run.list", s.takeRead(s.runList))
	add("run-events", "run.events", s.takeRead(s.runEvents))
	add("run-cancel", "run.cancel", s.takeRead(s.signal(worldengine.SignalCancel, schemas.RunCancelRequest)))
	add("control-pause", "control.pause", s.takeRead(s.signal(worldengine.SignalPause, schemas.ControlSignalRequest)))
	add("control-resume", "control.resume", s.takeRead(s.signal(worldengine.SignalResume, schemas.ControlSignalRequest)))
	add("control-get", "control.get", s.takeRead(s.controlGet))
	add("run-append", "run.append", s.takeAppend)
	return err
}

// takeHandoff is called for one request at a time, in the order of their arrival, so it only
// decides whether there is room.
func (s *Service) takeHandoff(r micro.Request) {
	if len(r.Data()) > s.config.MaxHandoff {
		s.fail(r.Reply(), tooLarge(len(r.Data()), s.config.MaxHandoff))
		return
	}
	a := &arrival{
		reply: r.Reply(), data: r.Data(), rights: s.rightsOf(r), parsed: make(chan struct{}),
	}
	select {
	case s.ordered <- a:
		s.decode <- a // as large as ordered, and emptied first: never blocks for long
	default:
		s.fail(r.Reply(), worldengine.ErrOverloaded)
	}
}

func (s *Service) decodeHandoffs() {
	limits := schemas.Limits{Bytes: s.config.MaxHandoff}
	for a := range s.decode {
		s.decodeSafely(a, limits)
	}
}

// decodeSafely keeps a defect in the reading of one handoff from taking the service down.
func (s *Service) decodeSafely(a *arrival, limits schemas.Limits) {
	defer close(a.parsed)
	defer func() {
		if p := recover(); p != nil {
			a.err = s.panicked(p)
		}
	}()
	if a.handoff, a.err = handoff.Parse(a.data, limits); a.err == nil {
		a.err = mayHandOff(a.rights, a.handoff)
	}
}

// panicked logs a defect and returns what its client is told.
func (s *Service) panicked(p any) error {
	s.config.Logger.Error("a request panicked", "panic", p, "stack", string(debug.Stack()))
	return errInternal
}

func (s *Service) submitHandoffs() {
	for a := range s.ordered {
		<-a.parsed
		if a.err == nil {
			a.err = s.engine.Submit(a.handoff, func(answer worldengine.Answer, err error) {
				if err != nil {
					s.fail(a.reply, err)
					return
				}
				s.answer(a.reply, answer)
			})
		}
		if a.err != nil {
			s.fail(a.reply, a.err)
		}
	}
}

func (s *Service) answer(reply string, answer worldengine.Answer) {
	s.respond(&nats.Msg{
		Subject: reply, Data: answer.JSON,
		Header: nats.Header{worldengine.RunIDHeader: {answer.RunID}},
	})
}

// respond sends an answer. One that nobody waits for, because the request had no reply subject, is
// not sent: its handoff was judged all the same. Nor is one that a client wants sent where only the
// engine, whose rights the answer has, may publish.
func (s *Service) respond(msg *nats.Msg) {
	if msg.Subject == "" {
		return
	}
	if isOwnSubject(msg.Subject) {
		s.config.Logger.Warn("an answer is not sent to a subject that is the engine's or JetStream's", "reply", msg.Subject)
		return
	}
	if err := s.replies.PublishMsg(msg); err != nil {
		s.config.Logger.Warn("an answer could not be sent", "reply", msg.Subject, "error", err)
	}
}

// isOwnSubject says whether a subject is one that the engine, NATS or JetStream take messages on.
func isOwnSubject(subject string) bool {
	for _, own := range []string{"$", "world.", "worldengine.", "runevents.", "alerts.", "deadletter."} {
		if strings.HasPrefix(subject, own) {
			return true
		}
	}
	return false
}

// takeRead hands a request to a reader.
func (s *Service) takeRead(handle func(context.Context, []byte) ([]byte, error)) func(micro.Request) {
	return func(r micro.Request) {
		reply, data := r.Reply(), r.Data()
		s.enqueue(reply, func() error {
			body, err := handle(s.ctx, data)
			if err == nil {
				s.respond(&nats.Msg{Subject: reply, Data: body})
			}
			return err
		})
	}
}

// enqueue leaves work to a reader, or refuses it when too much waits. An error of work, and a
// panic, is answered.
func (s *Service) enqueue(reply string, work func() error) {
	safely := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = s.panicked(p)
			}
		}()
		return work()
	}
	select {
	case s.reads <- func() {
		if err := safely(); err != nil {
			s.fail(reply, err)
		}
	}:
	default:
		s.fail(reply, worldengine.ErrOverloaded)
	}
}

func (s *Service) read() {
	for work := range s.reads {
		work()
	}
}

// Stop stops taking requests, and returns when every one that was taken is with the engine or
// answered; the engine's Close then finishes the rest. ctx bounds the wait.
func (s *Service) Stop(ctx context.Context) error {
	closed := make(chan struct{})
	s.requests.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if err := s.requests.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("service: %w", err)
	}
	select {
	case <-closed:
	case <-ctx.Done():
		return fmt.Errorf("service: requests are still arriving: %w", ctx.Err())
	}
	s.stopWorkers()
	return nil
}

func (s *Service) stopWorkers() {
	close(s.decode)
	close(s.ordered)
	close(s.reads)
	s.workers.Wait()
	s.stop()
}

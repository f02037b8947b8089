// Package service puts an engine on NATS: bytes in, bytes out.
//
// Every verb is an endpoint of one micro service named worldengine, on the subject
// worldengine.v1.<world>.<verb>, in one queue group: requests are shared between all instances of
// a world. Payloads are JSON. A handoff is answered with an execution-result.v1 and the header
// Run-Id; an error reply carries the headers Nats-Service-Error-Code and Nats-Service-Error, the
// body {"error": {"code", "message", "details": [{"path", "message"}]}}, and, where asking again
// makes sense (429 and 503), Retry-After-Ms.
//
// Handoffs are decoded side by side and submitted in the order of their arrival. Each other verb has
// readers of its own. Everything is bounded, in count and in bytes, and shared between towns: what does
// not fit is answered with 429 where it arrives, before it is read.
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
	// DefaultMaxHeld bounds the memory of the requests that are held, in bytes.
	DefaultMaxHeld = 64 << 20
)

// What NATS keeps for a verb until it is looked at: more than one message of any size that it takes. What
// comes when that is full is lost without an answer, which is why looking must be cheap.
const (
	pendingHandoffs = 64 << 20
	pendingOthers   = 20 << 20
	pendingMessages = 500_000
)

// notWaiting is how many requests about a town may be held beside those that may wait for it: one has its
// turn, one is applied, and some get an answer without waiting, such as that a handoff is in progress. What
// is too much then is left to the exact bound of the engine's queue.
const notWaiting = 4

// Config says how a service works. The zero value of every member means its documented default.
type Config struct {
	// World is the world's name; worldengine.DefaultWorld.
	World string
	// Version is the service's version, a semantic version; "0.0.0".
	Version string
	// MaxHandoff and MaxSnapshot bound a handoff and a town.put in bytes; DefaultMaxHandoff and
	// DefaultMaxSnapshot.
	MaxHandoff, MaxSnapshot int
	// MaxHeld bounds what all requests between their arrival and their answer may count for, in bytes:
	// their payloads, times what is taken to be kept of them; DefaultMaxHeld. One request may always be
	// held alone.
	MaxHeld int64
	// Readers is how many requests of each verb but handoff are worked on at once, and Waiting how many
	// may wait for that about one town, run or key, or about none, and twice as many altogether; 16 and
	// 4,096.
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
	set(&c.Readers, 16)
	set(&c.Waiting, 4096)
	if c.MaxHeld == 0 {
		c.MaxHeld = DefaultMaxHeld
	}
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
	lanes   []*lane
	workers sync.WaitGroup

	changes *places   // of handoffs and all else that the engine queues for a town
	places  []*places // all there are
	held    heldBytes
	refused refused

	ctx  context.Context // of the reads; done when Stop has waited for them
	stop context.CancelFunc
}

// arrival is a handoff on its way from the wire to its town's queue.
type arrival struct {
	reply   string
	place   *place
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
		ctx: ctx, stop: cancel,
	}
	s.held.bound = config.MaxHeld
	perTown, total := engine.Bounds()
	s.changes = s.addPlaces(perTown+notWaiting, total)
	s.decode, s.ordered = make(chan *arrival, total), make(chan *arrival, total)
	for range runtime.GOMAXPROCS(0) {
		s.workers.Go(s.decodeHandoffs)
	}
	s.workers.Go(s.submitHandoffs)
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
		StatsHandler: func(*micro.Endpoint) any { return s.stats() },
	})
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	group := svc.AddGroup(worldengine.SubjectPrefix(s.config.World))
	add := func(name, verb string, pendingBytes int, handle func(micro.Request)) {
		if addErr := group.AddEndpoint(name, micro.HandlerFunc(handle), micro.WithEndpointSubject(verb),
			micro.WithEndpointPendingLimits(pendingMessages, pendingBytes)); addErr != nil {
			err = errors.Join(err, fmt.Errorf("service: endpoint %s: %w", verb, addErr))
		}
	}
	add("handoff", "handoff", pendingHandoffs, s.takeHandoff)
	for _, e := range s.endpoints() {
		add(strings.ReplaceAll(e.verb, ".", "-"), e.verb, pendingOthers, e.handle)
	}
	return err
}

// endpoint is a verb with what takes its requests.
type endpoint struct {
	verb   string
	handle func(micro.Request)
}

// endpoints returns the verbs but handoff.
func (s *Service) endpoints() []endpoint {
	waiting := s.config.Waiting
	lists := min(waiting, waitingLists)
	return []endpoint{
		{"town.get", s.reads(aboutTown, waiting, s.townGet)},
		{"town.list", s.reads(aboutTown, lists, s.townList)},
		{"town.put", s.takePut()},
		{"town.patch", s.takePatch()},
		{"result.get", s.reads(aboutKey, waiting, s.resultGet)},
		{"run.get", s.reads(aboutRun, waiting, s.runGet)},
		{"run.list", s.reads(aboutTown, lists, s.runList)},
		{"run.events", s.reads(aboutRun, waiting, s.runEvents)},
		{"run.cancel", s.reads(aboutRun, waiting, s.signal(worldengine.SignalCancel, schemas.RunCancelRequest))},
		{"control.pause", s.reads(aboutTown, waiting, s.signal(worldengine.SignalPause, schemas.ControlSignalRequest))},
		{"control.resume", s.reads(aboutTown, waiting, s.signal(worldengine.SignalResume, schemas.ControlSignalRequest))},
		{"control.get", s.reads(aboutTown, waiting, s.controlGet)},
		{"run.append", s.takeAppend()},
	}
}

// stats is what the statistics of every endpoint say.
func (s *Service) stats() any {
	return struct {
		worldengine.Stats
		Overload Overload `json:"overload"`
	}{s.engine.Stats(), s.overload()}
}

// takeHandoff is called for one request at a time, in the order of their arrival, so it only
// decides whether there is room.
func (s *Service) takeHandoff(r micro.Request) {
	if len(r.Data()) > s.config.MaxHandoff {
		s.fail(r.Reply(), tooLarge(len(r.Data()), s.config.MaxHandoff))
		return
	}
	rights := s.rightsOf(r)
	p := s.admit(r, s.changes, s.townOf(rights, r.Data()), requestBytes+handoffWeight*int64(len(r.Data())))
	if p == nil {
		return
	}
	a := &arrival{
		reply: r.Reply(), place: p, data: r.Data(), rights: rights, parsed: make(chan struct{}),
	}
	// Both have room for all that has a place.
	s.ordered <- a
	s.decode <- a
}

// townOf returns the town that a request from somebody with these rights counts for: none where they may
// not speak for the town that it seems to be about, so that nobody takes places of others' towns.
func (s *Service) townOf(rights access.Rights, data []byte) []byte {
	town := guess(aboutTown, data)
	if s.config.Access != nil && rights.Town(string(town)) != nil {
		return nil
	}
	return town
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
	a.err = s.safely(func() (err error) {
		data := a.data
		a.data = nil // it is not held longer than it is needed
		if a.handoff, err = handoff.Parse(data, limits); err != nil {
			return err
		}
		return mayHandOff(a.rights, a.handoff)
	})
}

// safely does work for a request. A panic is logged, and what its client is told is returned.
func (s *Service) safely(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.config.Logger.Error("a request panicked", "panic", p, "stack", string(debug.Stack()))
			err = errInternal
		}
	}()
	return work()
}

func (s *Service) submitHandoffs() {
	for a := range s.ordered {
		<-a.parsed
		if a.err == nil {
			a.err = s.engine.Submit(a.handoff, func(answer worldengine.Answer, err error) {
				s.answerHandoff(a.place, a.reply, answer, err)
			})
		}
		if a.err != nil {
			s.failHeld(a.place, a.reply, a.err)
		}
	}
}

func (s *Service) answerHandoff(p *place, reply string, answer worldengine.Answer, err error) {
	s.conclude(p, reply, func() (*nats.Msg, error) {
		return &nats.Msg{Data: answer.JSON, Header: nats.Header{worldengine.RunIDHeader: {answer.RunID}}}, err
	})
}

// respond sends an answer. One that nobody waits for, because the request had no reply subject, is
// not sent: its handoff was judged all the same. Nor is one that a client wants sent where only the
// engine, whose rights the answer has, may publish.
func (s *Service) respond(msg *nats.Msg) { s.respondOn(s.replies, msg) }

func (s *Service) respondOn(nc *nats.Conn, msg *nats.Msg) {
	if msg.Subject == "" {
		return
	}
	if isOwnSubject(msg.Subject) {
		s.config.Logger.Warn("an answer is not sent to a subject that is the engine's or JetStream's", "reply", msg.Subject)
		return
	}
	if err := nc.PublishMsg(msg); err != nil {
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
	for _, l := range s.lanes {
		close(l.work)
	}
	s.workers.Wait()
	s.stop()
}

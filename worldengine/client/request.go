package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Request sends body to a verb and returns the reply. Within Timeout it repeats the request if no
// answer comes, or after a 429 or 503 if the reply names a pause; it then waits for the pause and a
// random time. A request that changes something is not repeated if it may
// have been carried out. The error is a *ReplyError or an *UnavailableError.
func (c *Client) Request(ctx context.Context, verb wire.Verb, body []byte) (*nats.Msg, error) {
	msg, _, err := c.exchange(ctx, verb, body, sending{})
	return msg, err
}

// Pauses of an exchange.
const (
	// An attempt without an answer is followed by the next one after resendInterval, or after half of the
	// time that is left if that is shorter. The wait doubles with each attempt, up to maxResendInterval.
	resendInterval    = 2 * time.Second
	maxResendInterval = 30 * time.Second
	// absentInterval is the pause before a repetition if no server is subscribed.
	absentInterval = 250 * time.Millisecond
)

// exchange is one request with its repetitions.
type exchange struct {
	client      *Client
	ctx         context.Context // of the caller
	verb        wire.Verb
	request     *nats.Msg
	townID      string // see sending
	answers     chan attempt
	gameChecked chan error // of looks for the town's game: see absent
	// deadline is by the monotonic clock. If the clock was set forward, the deadline of ctx may
	// have passed although ctx has not ended. Such a deadline is ignored.
	deadline time.Time
	interval time.Duration // until an attempt without an answer is repeated
	timer    *time.Timer   // of the next attempt

	unanswered int   // the number of attempts without an answer
	before     error // the connection's last error before the first attempt
	doubt      bool  // an earlier attempt may have been carried out
	last       error // the last error after which the request was repeated
}

type attempt struct {
	msg *nats.Msg
	err error
}

// sending is the parts of a request that few requests have.
type sending struct {
	header nats.Header
	// townID is the town of a handoff. Before an unanswered handoff is repeated, the client asks
	// whether the handoff waits for the town's game.
	townID string
	// wait is how long the server may wait before it answers.
	wait time.Duration
}

// exchange repeats a request until any attempt is answered. doubt means that an earlier attempt may
// have been carried out.
func (c *Client) exchange(
	ctx context.Context, verb wire.Verb, body []byte, more sending,
) (msg *nats.Msg, doubt bool, err error) {
	bounded, cancel := c.bounded(ctx, more.wait)
	defer cancel()
	deadline, _ := bounded.Deadline()
	if at, is := ctx.Deadline(); is {
		if left := time.Until(at); left > 0 && left < time.Until(deadline) {
			deadline = time.Now().Add(left)
		}
	}
	x := &exchange{
		client: c, ctx: ctx, verb: verb, townID: more.townID,
		answers: make(chan attempt), gameChecked: make(chan error),
		deadline: deadline, before: c.Conn.LastError(),
		request: &nats.Msg{Subject: wire.Subject(c.World, verb), Data: body, Header: nats.Header{
			wire.ResultRevisionHeader: {strconv.Itoa(int(c.Revision))},
		}},
		interval: firstInterval(time.Until(deadline), more.wait),
		timer:    time.NewTimer(time.Hour),
	}
	defer x.timer.Stop()
	maps.Copy(x.request.Header, c.Header)
	maps.Copy(x.request.Header, more.header)
	x.attempt(bounded)
	for {
		select {
		case a := <-x.answers:
			msg, over, err := x.handleAttempt(a)
			if over {
				return msg, x.doubt, err
			}
		case <-x.timer.C:
			if denied := x.due(bounded); denied != nil {
				return nil, false, denied
			}
		case why := <-x.gameChecked:
			x.repeatDue(bounded, why)
		case <-bounded.Done():
			return nil, false, x.late(bounded.Err())
		}
	}
}

// firstInterval returns how long to wait for an answer to the first attempt. left is the time until
// the deadline, wait the time that the server may wait before it answers.
func firstInterval(left, wait time.Duration) time.Duration {
	return wait + min(resendInterval, (left-wait)/2)
}

// due sends the request once more. Before it repeats an unanswered handoff, it looks whether the
// town's game is absent. It returns an error if NATS denies the request to the user.
func (x *exchange) due(ctx context.Context) error {
	if x.unanswered > 0 {
		if denied := x.denied(); denied != nil {
			return denied
		}
		if x.townID != "" {
			go func() { // an answer to the handoff may come meanwhile
				why := x.client.absent(ctx, x.townID)
				select {
				case x.gameChecked <- why:
				case <-ctx.Done():
				}
			}()
			return nil
		}
	}
	x.attempt(ctx)
	return nil
}

// repeatDue repeats a handoff after due has asked for the game, unless the handoff waits for the game. If
// the last attempt was refused meanwhile, the next attempt is already scheduled.
func (x *exchange) repeatDue(ctx context.Context, why error) {
	switch {
	case x.unanswered == 0:
	case why == nil:
		if _, looked := errors.AsType[*UnavailableError](x.last); looked {
			x.last = nil // the handoff does not wait for the game any more
		}
		x.attempt(ctx)
	default:
		x.waits(why)
		x.timer.Reset(resendInterval)
	}
}

// attempt sends the request once more, unless its verb changes something and an attempt is
// unanswered.
func (x *exchange) attempt(ctx context.Context) {
	if x.unanswered > 0 {
		if protocol.LookupVerb(x.verb).NonIdempotent {
			return
		}
		x.doubt = true
	}
	x.unanswered++
	x.timer.Reset(x.interval)
	x.interval = min(2*x.interval, maxResendInterval)
	go func() {
		msg, err := x.client.Conn.RequestMsgWithContext(ctx, x.request)
		select {
		case x.answers <- attempt{msg, err}:
		case <-ctx.Done():
		}
	}()
}

// handleAttempt handles the end of an attempt, and reports whether the exchange is over.
func (x *exchange) handleAttempt(a attempt) (msg *nats.Msg, over bool, err error) {
	x.unanswered--
	if a.err != nil {
		err := x.failed(a.err)
		// A server that has an unanswered attempt was there, too. One that stops says that it does not
		// serve the world; the next one will.
		away := IsCode(err, codeNoResponders) || IsCode(err, wire.CodeWorldNotServed)
		again := away && (x.client.served.Load() || x.unanswered > 0)
		return nil, !again || !x.scheduleRetry(err, absentInterval), err
	}
	x.client.served.Store(true)
	refused := replyErrorOf(a.msg)
	if refused == nil {
		return a.msg, true, nil
	}
	if refused.Status == http.StatusServiceUnavailable {
		x.doubt = true // the handoff may be stored, and wait for the end of a pause or for a game
	}
	return nil, !repeatable(x.verb, refused) || !x.scheduleRetry(refused, refused.RetryAfter), refused
}

// scheduleRetry schedules another attempt after a pause, and reports whether there is time for it. It adds a
// random time, since other clients may have been refused at the same moment.
func (x *exchange) scheduleRetry(why error, pause time.Duration) bool {
	rest := time.Until(x.deadline) - pause
	if rest <= 0 {
		return false
	}
	x.waits(why)
	x.timer.Reset(pause + rand.N(min(pause, rest/2)+1))
	return true
}

// waits keeps an error after which the request is repeated, and calls OnPaused if a handoff waits.
func (x *exchange) waits(why error) {
	x.last = why
	if x.client.OnPaused == nil || x.townID == "" || !isWait(why) {
		return
	}
	unavailableError, _ := errors.AsType[*UnavailableError](why)
	if refused, is := errors.AsType[*ReplyError](why); is {
		unavailableError = unavailable(refused.Code, refused, "%s", refused.Message)
	}
	x.client.OnPaused(x.townID, unavailableError)
}

// isWait reports whether err means that a handoff waits for the end of a pause or for a game.
func isWait(err error) bool {
	return slices.ContainsFunc(protocol.Errors(), func(spec protocol.ErrorSpec) bool {
		return spec.WaitReason && IsCode(err, spec.Code)
	})
}

// late returns the error if no answer came in time.
func (x *exchange) late(cause error) error {
	switch {
	case x.last != nil && (x.unanswered == 0 || IsCode(x.last, wire.CodeInProgress)):
		return x.last // more precise than a timeout
	case !errors.Is(x.ctx.Err(), context.Canceled) && isWait(x.last):
		return x.last // the unanswered attempt waits for the same reason
	}
	return x.failed(cmp.Or(x.ctx.Err(), cause))
}

// failed returns the error of an attempt without a reply.
func (x *exchange) failed(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) {
		if denied := x.denied(); denied != nil {
			return denied
		}
		if x.ctx.Err() != nil {
			return unavailable(codeTimeout, err, "no answer to %s before the deadline of its context; "+
				"the request may have been carried out", x.verb)
		}
	}
	return x.client.unanswered(err, x.verb, len(x.request.Data))
}

// denied returns an error if NATS has refused the user to publish the request or to subscribe to
// the inbox; else nil. The connection keeps its last refusal, which may be about another subject or
// an earlier request. The connection subscribes to the inbox once, so the refusal of that
// subscription counts until an answer has come.
func (x *exchange) denied() error {
	nc := x.client.Conn
	last, inbox := nc.LastError(),
		cmp.Or(nc.Opts.InboxPrefix, strings.TrimSuffix(nats.InboxPrefix, "."))
	fresh := last != x.before
	if !(fresh && violates(last, "Publish", x.request.Subject+`"`)) &&
		!((fresh || !x.client.served.Load()) && violates(last, "Subscription", inbox+".")) {
		return nil
	}
	return unavailable(codeDenied, last,
		"this user may not ask for %s, or not read the answer in its inbox: %s", x.verb, last)
}

// violates reports whether err is NATS's refusal of an operation on a subject that begins with
// subject.
func violates(err error, operation, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) &&
		strings.Contains(err.Error(), operation+` to "`+subject)
}

func repeatable(verb wire.Verb, refused *ReplyError) bool {
	switch refused.Status {
	case http.StatusTooManyRequests:
		return refused.RetryAfter > 0
	case http.StatusServiceUnavailable:
		return refused.RetryAfter > 0 && !protocol.LookupVerb(verb).NonIdempotent
	}
	return false
}

// unanswered returns the error of a request without a reply: an *UnavailableError or *ReplyError.
func (c *Client) unanswered(err error, verb wire.Verb, size int) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return &ReplyError{
			Status: http.StatusRequestEntityTooLarge, Code: string(schemas.CodePayloadTooLarge),
			Message: fmt.Sprintf("the request has %d bytes, this NATS server takes %d", size,
				c.Conn.MaxPayload()),
		}
	case errors.Is(err, nats.ErrNoResponders):
		return c.noResponders(err, verb)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return unavailable(codeTimeout, err, "no answer to %s within %s; the request may have been "+
			"carried out", verb, cmp.Or(c.Timeout, defaultTimeout))
	case errors.Is(err, context.Canceled):
		return unavailable("INTERRUPTED", err, "interrupted before an answer came")
	case errors.Is(err, nats.ErrConnectionClosed):
		return c.closed()
	}
	return unavailable(codeConnection, err, "the connection failed: %s", err)
}

// closed returns the error of a closed connection. The client has closed the connection, or the
// server now refuses the client.
func (c *Client) closed() error {
	e := unavailable(codeConnection, nats.ErrConnectionClosed, "the connection is closed")
	for _, refusal := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked,
		nats.ErrAccountAuthExpired,
	} {
		if errors.Is(c.Conn.LastError(), refusal) {
			e.Message += ": the server refuses its credentials: " + refusal.Error()
			e.Cause = refusal
		}
	}
	return e
}

// replyErrorOf returns the error of an error reply; nil for any other reply.
func replyErrorOf(msg *nats.Msg) *ReplyError {
	code := msg.Header.Get(wire.ErrorCodeHeader)
	if code == "" {
		return nil
	}
	status, err := strconv.Atoi(code)
	if err != nil {
		status = http.StatusInternalServerError
	}
	var body messages.Error
	_ = json.Unmarshal(msg.Data, &body) // without a body, the headers describe the error
	pause, _ := strconv.Atoi(msg.Header.Get(wire.RetryAfterHeader))
	return &ReplyError{
		Status: status, Code: cmp.Or(body.Error.Code, "UNKNOWN"), Details: body.Error.Details,
		Message:    cmp.Or(body.Error.Message, msg.Header.Get(wire.ErrorHeader)),
		RetryAfter: time.Duration(max(pause, 0)) * time.Millisecond,
		RunID:      msg.Header.Get(wire.RunIDHeader),
	}
}

// documents leaves documents in a request unchanged: the server refuses duplicate names and invalid
// UTF-8 there, and names the place. Other texts must be UTF-8, since encoding would change them
// otherwise.
var documents = json.JoinOptions(json.Deterministic(true), jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true), jsontext.PreserveRawStrings(true),
	json.WithMarshalers(json.MarshalToFunc(func(_ *jsontext.Encoder, text string) error {
		if !utf8.ValidString(text) {
			return errors.New("the text is not UTF-8")
		}
		return errors.ErrUnsupported // continues as without this function
	})))

// Ask sends a request to a verb as JSON, and decodes the reply into reply. It returns the JSON of
// the reply.
func (c *Client) Ask(
	ctx context.Context, verb wire.Verb, request, reply any,
) (jsontext.Value, error) {
	body, err := json.Marshal(request, documents)
	if err != nil {
		return nil, fmt.Errorf("client: the request of %s cannot be encoded: %w", verb, err)
	}
	var more sending
	if list, is := request.(messages.EventListRequest); is {
		more.wait = time.Duration(list.WaitMs) * time.Millisecond
	}
	msg, _, err := c.exchange(ctx, verb, body, more)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(msg.Data, reply); err != nil {
		return nil, invalidAnswer(err)
	}
	return msg.Data, nil
}

func ask[Reply any](
	ctx context.Context, c *Client, verb wire.Verb, request any,
) (reply Reply, err error) {
	_, err = c.Ask(ctx, verb, request, &reply)
	return reply, err
}

// rows iterates over the rows of a list after a place, page by page. ask returns the page after a
// place, and the place before the next page. The zero place is before the first page and after the
// last one. The iteration ends with the first error.
func rows[Row any, Place comparable](
	begin Place, ask func(after Place) (page []Row, next Place, err error),
) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		var none Place
		for after, more := begin, true; more; more = after != none {
			page, next, err := ask(after)
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			if err != nil {
				var zero Row
				yield(zero, err)
				return
			}
			after = next
		}
	}
}

func invalidAnswer(err error) error {
	return unavailable(codeInvalid, err, "the server's answer cannot be read: %s", err)
}

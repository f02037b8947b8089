package service

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/engine"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// requestBytes is the share of Config.MaxHeld that a request uses beside its payload.
const requestBytes = 1 << 10

// admit acquires a slot, then reserves bytes, and then queues a request for the workers of its endpoint. If the
// bytes do not fit, it releases the slot again. A request that does not fit gets 429. admit runs as requests arrive,
// one at a time for each verb, so it reads no more of a request than peekID does.
func (a *addressee) admit(e *endpoint, in *incoming) {
	owner, load, reason := e.slots.acquire(a.token, a.slotKey(e, in))
	if reason != granted {
		a.shed(in, reason, retryAfter(load))
		return
	}
	// A request of any size fits if it is the only one.
	bytes := min(requestBytes+e.weight*int64(len(in.data)), a.service.memory.bound)
	if !a.service.memory.reserve(&a.usage, bytes, e.queued) {
		e.slots.release(owner)
		a.shed(in, memoryFull, max(retryAfter(load), memoryRetryMs))
		return
	}
	in.slots, in.slotOwner, in.bytes = e.slots, owner, bytes
	a.unanswered.Add(1)
	e.lane(owner).put(in)
}

// slotKey returns the key whose slots a request uses. It returns nothing if the
// sender's rights do not cover the town that the request would change. So no client uses up the slots
// of a town outside its rights.
func (a *addressee) slotKey(e *endpoint, in *incoming) []byte {
	id := peekID(e.slotKey, in.data)
	if e.queued && a.service.config.Access != nil && in.rights.CheckTown(string(id)) != nil {
		return nil
	}
	return id
}

// release releases the slot and the bytes of a request. It does nothing if the request was not
// admitted, or was released before.
func (a *addressee) release(in *incoming) {
	if in.slots != nil && in.released.CompareAndSwap(false, true) {
		in.slots.release(in.slotOwner)
		a.service.memory.release(&a.usage, in.bytes)
	}
}

// usage counts the requests of a world that are between their arrival and their answer.
type usage struct {
	requests int
	bytes    int64
}

// memoryBudget bounds the memory of all admitted requests. If several worlds are open, a world may
// have at most as much as is free. A memoryBudget is safe for concurrent use.
type memoryBudget struct {
	bound      int64
	openWorlds *atomic.Int64 // how many worlds share the memory

	mu   sync.Mutex // guards used and the usage of each world
	used int64
}

// reserve reserves bytes for a request of a world and reports whether they fit; bytes that do not fit are
// not reserved. Requests that are not queued have an eighth more room, so that operators can look and
// cancel when waiting handoffs fill the rest.
func (m *memoryBudget) reserve(world *usage, bytes int64, queued bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	room := m.bound - m.used
	if !queued {
		room += m.bound / 8
	}
	if bytes > room || world.bytes > 0 && m.openWorlds.Load() > 1 && bytes > fairShare(world.bytes, room) {
		return false
	}
	m.used += bytes
	world.bytes += bytes
	world.requests++
	return true
}

func (m *memoryBudget) release(world *usage, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= bytes
	world.bytes -= bytes
	world.requests--
}

func (m *memoryBudget) read(world *usage) usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *world
}

// shedReasonNames are the names of the reasons in statistics, for operators.
var shedReasonNames = [...]string{
	keyFull: "town", worldFull: "world", serverFull: "server", memoryFull: "bytes", queueFull: "queue",
}

// Overload returns how full the service is with requests for the world, and how many of these it has
// refused.
func (w *ServedWorld) Overload() messages.Overload {
	current := w.service.memory.read(&w.usage)
	refused := map[string]int64{}
	for reason := keyFull; reason <= queueFull; reason++ {
		if n := w.shedCounts[reason].Load(); n > 0 || reason != serverFull {
			refused[shedReasonNames[reason]] = n
		}
	}
	return messages.Overload{
		Held: current.requests, HeldBytes: current.bytes, Refused: refused, StrayReplies: w.service.strayReplies.Load(),
	}
}

// shed counts a request that is shed, and answers with 429.
func (a *addressee) shed(in *incoming, reason shedReason, afterMs int) {
	a.shedCounts[reason].Add(1)
	a.countAnswer(in, wire.CodeOverloaded)
	answers := &overloaded
	if reason == serverFull {
		answers = &serverOverloaded
	}
	msg := answers[afterMs/retryAfterStep]
	a.send(in, &msg)
}

// overloaded has the answers with 429, one for each Retry-After. They are made once, since a flood of
// requests gets many of them. serverOverloaded has the answers to requests of a world that does not
// fill its own share.
var (
	overloaded       = refusals(failureOf(engine.ErrOverloaded))
	serverOverloaded = refusals(failureOf(errServerFull))
)

func refusals(f failure) (answers [maxRetryAfter/retryAfterStep + 1]nats.Msg) {
	for i := range answers {
		msg := f.reply()
		msg.Header[wire.RetryAfterHeader] = []string{strconv.Itoa(i * retryAfterStep)}
		answers[i] = *msg
	}
	return answers
}

// Estimates of the time after which a client is asked to try again. Requests about one town are carried out
// one after another, and requests about different towns side by side.
const (
	maxRetryAfter      = 1000 // milliseconds
	retryAfterStep     = 50   // milliseconds; a time is a multiple of it
	msPerTownRequest   = 2    // milliseconds per request that waits for the same town
	worldRequestsPerMs = 4    // requests of a world per millisecond
	memoryRetryMs      = 250  // milliseconds, the least time if memory is short
)

// retryAfter returns the milliseconds after which a client is asked to try again. In about that time the
// earlier requests are done, so that there is room when the client asks again.
func retryAfter(load slotLoad) int {
	ms := max(load.key*msPerTownRequest, load.all/worldRequestsPerMs)
	ms = (ms + retryAfterStep - 1) / retryAfterStep * retryAfterStep
	return min(max(ms, retryAfterStep), maxRetryAfter)
}

// Bounds of the search for an id.
const (
	peekBytes = 16 << 10 // bytes of a payload that are looked at
	maxID     = 512      // bytes of an id that is found
	maxEscape = 6        // the most bytes that spell one byte of an id, as in \u0041
)

// member is the name of a member of requests, as it is spelled in JSON.
type member []byte

// townMember is the member of requests that names their town.
var townMember = member(`"townId"`)

// peekID returns the id that a request seems to have in a member, without parsing the request: the
// text of the first member of that name that is a string, or nothing. The id only chooses the slots
// and the lane, so that a flood about one town is refused before parsing.
//
// The id is wrong if the request has another member of that name first, spells the name with
// escapes, or has the member behind the first peekBytes bytes. Such a request counts for another
// town, or for none. At worst it gets a 429 without need, is bounded only by the engine's queue, or
// overtakes an earlier request of its town. peekID allocates nothing, unless the id is spelled with
// escapes.
func peekID(about member, data []byte) []byte {
	const space = " \t\r\n"
	rest := data[:min(len(data), peekBytes)]
	for {
		_, after, found := bytes.Cut(rest, about)
		if !found {
			return nil
		}
		// Without a colon it is a text that reads like the name.
		value, isMember := bytes.CutPrefix(bytes.TrimLeft(after, space), []byte(":"))
		value = bytes.TrimLeft(value, space)
		if isMember && bytes.HasPrefix(value, []byte(`"`)) {
			return stringAt(value)
		}
		rest = after
	}
}

// stringAt returns the text of the JSON string that data begins with. It returns nothing if the
// text is longer than maxID, or has escapes that JSON does not have. Such a request is refused when
// it is parsed.
func stringAt(data []byte) []byte {
	data = data[:min(len(data), maxEscape*maxID+2)]
	escaped := false
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			escaped = true
			i++ // the escaped character does not end the string
		case '"':
			text, err := data[1:i], error(nil)
			if escaped {
				text, err = jsontext.AppendUnquote(nil, data[:i+1])
			}
			if err != nil || len(text) > maxID {
				return nil
			}
			return text
		}
	}
	return nil
}

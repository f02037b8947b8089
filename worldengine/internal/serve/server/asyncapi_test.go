package server_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas/schemastest"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/asyncapi.txt anew")

// described is a world, and the AsyncAPI document that describes it.
type described struct {
	*world
	api *schemastest.AsyncAPI

	mu   sync.Mutex
	seen map[string]int // published messages, by the name of their message in the document
}

func newDescribed(t *testing.T) *described {
	d := &described{api: schemastest.ReadAsyncAPI(t), seen: map[string]int{}}
	d.world = newWorld(t, withBus)
	return d
}

// Each example of a request in the AsyncAPI document gets an answer that the document declares for its
// operation. The messages that the server publishes meanwhile are declared too.
func TestAsyncAPI_Server(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)
	d.listen("events", func(*nats.Msg) string { return "events.commit" })
	d.listen("runevents", func(msg *nats.Msg) string { return "runevents." + msg.Header.Get(wire.EventTypeHeader) })
	// The town as town.get shows it is the one that the handoff is about.
	d.put(d.api.Components.Messages["town.get.reply"].Examples[0].Payload.(members)["snapshot"], "")
	verbs := slices.DeleteFunc(protocol.Verbs(), func(v wire.Verb) bool { return v == wire.TownRemove })
	var got strings.Builder
	for _, verb := range append(verbs, wire.TownRemove) {
		for i, example := range d.api.Components.Messages[string(verb)+".request"].Examples {
			fmt.Fprintf(&got, "%s %d: %s\n", verb, i+1, d.try(verb, example))
		}
	}
	const golden = "testdata/asyncapi.txt"
	schemastest.Golden(t, golden, got.String(), *rewrite)
	eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.seen["events.commit"] > 0 && d.seen["runevents.RunCompleted"] > 0 && d.seen["runevents.StepCompleted"] > 0
	})
}

// try sends an example of a request, checks that the answer is declared, and returns it in a few words.
func (d *described) try(verb wire.Verb, example schemastest.Example) string {
	d.t.Helper()
	operation := d.api.Operations[string(verb)]
	msg := &nats.Msg{Subject: d.address(operation.Channel.Name()), Data: bodyOf(d.t, example.Payload), Header: nats.Header{}}
	for name, value := range example.Headers {
		msg.Header.Set(name, value.(string))
	}
	reply := <-d.publish(msg)
	name := string(verb) + ".reply"
	if codeOf(reply) != "" {
		name = "error." + d.failureOf(reply).Code
	}
	var declared []string
	for _, message := range operation.Reply.Messages {
		declared = append(declared, message.Name())
	}
	require.Contains(d.t, declared, name)
	d.fits(name, reply)
	switch {
	case codeOf(reply) != "":
		return codeOf(reply) + " " + d.failureOf(reply).Code
	case verb == wire.Handoff:
		result := d.resultOf(reply).result
		return fmt.Sprint(result.Status, " ", result.ReasonCode)
	}
	return "answered"
}

// address returns the address of a channel in the world.
func (d *described) address(channel string) string {
	address := d.api.Channels[channel].Address
	require.NotEmpty(d.t, address, channel)
	return strings.NewReplacer("{world}", d.client.world, "{townToken}", "*", "{runToken}", "*", "{code}", "*").Replace(address)
}

// fits checks that a message is the one of a name in the document.
func (d *described) fits(name string, msg *nats.Msg) {
	d.t.Helper()
	var payload any
	if !assert.NoError(d.t, json.Unmarshal(msg.Data, &payload), name) {
		return
	}
	headers := map[string]any{}
	for header := range msg.Header {
		headers[header] = msg.Header.Get(header)
	}
	assert.NoError(d.t, d.api.Payload(name).Validate(payload), "%s: %s", name, msg.Data)
	assert.NoError(d.t, d.api.Headers(name).Validate(headers), "%s: %v", name, headers)
}

// listen checks the messages that are published on a channel.
func (d *described) listen(channel string, nameOf func(*nats.Msg) string) {
	_, err := d.nc.Subscribe(d.address(channel), func(msg *nats.Msg) {
		d.mu.Lock()
		defer d.mu.Unlock()
		name := nameOf(msg)
		d.fits(name, msg)
		d.seen[name]++
	})
	require.NoError(d.t, err)
	require.NoError(d.t, d.nc.Flush())
}

// Each example of a plugin's answer, sent as the answer to a command, is one that the server takes; the command
// and the alerts are declared.
func TestAsyncAPI_Plugin(t *testing.T) {
	t.Parallel()
	d := newDescribed(t)
	d.listen("alerts", func(*nats.Msg) string { return "alerts.alert" })
	var answer map[string]any
	_, err := d.nc.Subscribe(d.address("apply"), func(msg *nats.Msg) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.fits("apply.command", msg)
		var command struct{ ApplyID string }
		assert.NoError(t, json.Unmarshal(msg.Data, &command))
		for _, status := range []string{"", "refused"} { // busy and in-progress are no end
			answer["applyId"] = command.ApplyID
			if status != "" && answer["status"] != "applied" {
				answer["status"], answer["reasonCode"], answer["retryable"] = status, "IN_THE_END", false
			}
			assert.NoError(t, msg.Respond(bodyOf(t, answer)))
		}
	})
	require.NoError(t, err)
	require.NoError(t, d.nc.Flush())
	statuses := map[handoff.Status]int{}
	for i, example := range d.api.Components.Messages["apply.answer"].Examples {
		at := d.putTown(fmt.Sprint("town-", i), "apply", "plugin")
		d.mu.Lock()
		answer = example.Payload.(map[string]any)
		delete(answer, "snapshot") // of another town
		d.mu.Unlock()
		statuses[d.send(d.wall(at)).result.Status]++
	}
	require.NotZero(t, statuses[handoff.Executed])
	require.NotZero(t, statuses[handoff.Failed])
	eventually(t, func() bool { // such as PLUGIN_DOUBLE_ANSWER, for the second "applied"
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.seen["alerts.alert"] > 0
	})
}

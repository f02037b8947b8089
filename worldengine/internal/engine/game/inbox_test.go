package game

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/store/alerts"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
)

// raised are the alerts of an inbox.
type raised struct {
	mu     sync.Mutex
	codes  []runevents.AlertCode
	alerts []runevents.Alert
	all    func(context.Context) ([]messages.Alert, error)
}

func (r *raised) RaiseOnce(alert runevents.Alert) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codes, r.alerts = append(r.codes, alert.Code), append(r.alerts, alert)
}

func (r *raised) Raise(alert runevents.Alert) { r.RaiseOnce(alert) }

func (*raised) RaiseStored(context.Context, runevents.Alert) error { return nil }

func (r *raised) All(ctx context.Context) ([]messages.Alert, error) {
	if r.all == nil {
		return nil, nil
	}
	return r.all(ctx)
}

// commanded is a command, whose replies come to an inbox without a connection.
type commanded struct {
	*Inbox
	*Execution
	*raised
}

// idle is a dispatcher whose queue has no workers.
var idle = New(context.Background(), &stepper.Stepper{Log: &records.Log{Log: new(commitlog.Log)}},
	Config{Queue: queue.New(context.Background(), queue.Config{})})

func newCommanded() *commanded {
	c := &commanded{raised: new(raised)}
	c.Inbox = newInbox("inbox.", c.raised)
	c.Execution = emptyExecution(idle, alerts.About{TownID: "town-a", HandoffID: commandID}, apply.Plugin)
	c.expect(c.Execution)
	return c
}

var commandID = "handoff_" + strings.Repeat("0", 64)

// answers takes an answer to a request of an attempt.
func (c *commanded) answers(attempt string, data []byte) {
	c.deliver(&nats.Msg{Subject: c.prefix + c.replyToken + "." + attempt, Data: data})
}

func written(t *testing.T, a apply.GameAnswer) []byte {
	t.Helper()
	data, err := a.MarshalWire()
	require.NoError(t, err)
	return data
}

var command = &apply.Command{ApplyID: commandID}

// A reply that arrives while its execution is given up is late, and raises an alert: it must not
// end in a queue that nobody reads.
func TestInbox_LateWhileGivenUp(t *testing.T) {
	t.Parallel()
	const executions = 5_000
	done, late := written(t, apply.Done(command)), 0
	for range executions {
		c := newCommanded()
		var both sync.WaitGroup
		both.Go(func() { c.answers("1", done) })
		both.Go(func() { c.Forget(c.Execution, true) })
		both.Wait()
		late += len(c.codes)
	}
	require.Equal(t, executions, late)
}

// A late answer raises an alert exactly if it says that the command is applied.
func TestInbox_Late(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		data   []byte
		gaveUp bool
		late   bool
	}{
		"applied":        {written(t, apply.Done(command)), true, true},
		"refused":        {written(t, apply.Refuse(command, "NO", "no", false)), true, false},
		"no answer":      {[]byte(`no JSON, "applied"`), true, false},
		"of another one": {written(t, apply.Done(&apply.Command{ApplyID: "other"})), true, false},
		"not given up":   {written(t, apply.Done(command)), false, false},
	} {
		c := newCommanded()
		c.Forget(c.Execution, row.gaveUp)
		c.answers("1", row.data)
		require.Equal(t, row.late, len(c.codes) == 1, name)
		if row.late {
			require.Equal(t, runevents.PluginLateAnswer, c.codes[0])
		}
	}
}

// A plugin answers each request once, even a repeated one; any further answer is another plugin's,
// whether it comes before the execution's end or after.
func TestInbox_Double(t *testing.T) {
	t.Parallel()
	done := written(t, apply.Done(command))
	inProgress := written(t, apply.Later(command, apply.InProgress, 0))
	refused := written(t, apply.Refuse(command, "NO", "applied", false))
	for _, row := range []struct {
		name    string
		sent    int      // requests of attempt 1
		before  [][]byte // the answers to it while the execution goes on
		after   [][]byte // and afterwards
		doubled int
	}{
		{"each request is answered", 2, [][]byte{done}, [][]byte{done}, 0},
		{"two answers to one request", 1, [][]byte{done, done}, nil, 1},
		{"the second one comes later", 1, [][]byte{done}, [][]byte{done}, 1},
		{"three answers to two requests", 2, [][]byte{done, done}, [][]byte{done}, 1},
		{"an answer that is not applied does not count", 1, [][]byte{inProgress, inProgress, done},
			nil, 0},
		{"a refusal that has the word", 1, [][]byte{done, refused}, nil, 0},
	} {
		c := newCommanded()
		requests := c.Inbox.open[c.replyToken]
		requests.sent[1], requests.sent[2] = row.sent, 1
		for _, data := range row.before {
			c.answers("1", data)
		}
		c.Forget(c.Execution, false)
		for _, data := range row.after {
			c.answers("1", data)
		}
		require.Len(t, c.codes, row.doubled, row.name)
		c.answers("2", done)
		require.Len(t, c.codes, row.doubled, "another attempt has its own count")
	}
}

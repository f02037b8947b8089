package client

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// A list is asked for page by page, each behind the one before, until the last or the reader stops.
func TestClient_Alerts(t *testing.T) {
	c := start(t)
	asked := make(chan messages.AlertList, 9)
	_, err := c.Conn.Subscribe(wire.Subject("main", wire.AlertList), func(msg *nats.Msg) {
		var r messages.AlertList
		assert.NoError(t, json.Unmarshal(msg.Data, &r))
		asked <- r
		page := `{"alerts":[{"seq":9},{"seq":5}],"next":5}`
		if r.After == 5 {
			page = `{"alerts":[{"seq":3}]}`
		}
		assert.NoError(t, msg.Respond([]byte(page)))
	})
	require.NoError(t, err)
	list := func(most int) (seqs []uint64) {
		for alert, err := range c.Alerts(t.Context(), true) {
			require.NoError(t, err)
			if seqs = append(seqs, alert.Seq); len(seqs) == most {
				break
			}
		}
		return seqs
	}
	require.Equal(t, []uint64{9, 5, 3}, list(9))
	require.Equal(t, []uint64{9}, list(1))
	for _, after := range []uint64{0, 5, 0} {
		require.Equal(t, messages.AlertList{After: after, Limit: 200, Open: true}, <-asked)
	}
	require.Empty(t, asked)

	serve(t, c, wire.AlertAck, func(int64) *nats.Msg {
		return &nats.Msg{Data: []byte(`{"seq":9,"acknowledged":{"by":"ada"}}`)}
	})
	alert, err := c.AcknowledgeAlert(t.Context(), 9, "ada", "It was applied.")
	require.NoError(t, err)
	require.Equal(t, "ada", alert.Acknowledged.By)
}

// An answer that breaks the contract is an error: no JSON, a list that goes back, or events that
// break off.
func TestClient_InvalidAnswers(t *testing.T) {
	c := start(t)
	for verb, answer := range map[wire.Verb]string{
		wire.TownGet:   `{`,
		wire.TownList:  `{"towns":[{"townId":"b"}],"next":"b"}`,
		wire.RunEvents: `{"events":[],"lastEventSeq":4}`,
	} {
		serve(t, c, verb, func(int64) *nats.Msg { return &nats.Msg{Data: []byte(answer)} })
	}
	_, err := c.Town(t.Context(), "t")
	require.True(t, IsCode(err, codeInvalid), "%v", err)
	for _, err = range c.Towns(t.Context(), messages.TownList{}) {
	}
	require.ErrorContains(t, err, `the list comes back to "b"`)
	for _, err = range c.RunEvents(t.Context(), "r", 2) {
	}
	require.ErrorContains(t, err, "the events of run r break off at 2 of 4")
}

// EventList waits longer than the client's Timeout for commits, asks once, and passes errors on.
func TestClient_EventList(t *testing.T) {
	c := start(t)
	c.Timeout = 100 * time.Millisecond
	_, err := c.EventList(t.Context(), messages.EventListRequest{})
	require.True(t, IsCode(err, codeNoResponders), "%v", err)
	sub, err := c.Conn.Subscribe(wire.Subject("main", wire.EventList), func(msg *nats.Msg) {
		time.AfterFunc(5*c.Timeout, func() { assert.NoError(t, msg.Respond(commits("7", "").Data)) })
	})
	require.NoError(t, err)
	page, err := c.EventList(t.Context(), messages.EventListRequest{After: "1", WaitMs: 30_000})
	require.NoError(t, err)
	require.Equal(t, "7", page.Cursor)
	require.NoError(t, sub.Unsubscribe())
	asked := serve(t, c, wire.EventList, func(int64) *nats.Msg {
		return refusal("400", wire.CodeInvalidCursor)
	})
	_, err = c.EventList(t.Context(), messages.EventListRequest{After: "9"})
	require.True(t, IsCode(err, wire.CodeInvalidCursor), "%v", err)
	require.EqualValues(t, 1, asked.Load())
}

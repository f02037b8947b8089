package worldengine

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/runevents"
)

// eventConfig is the stream of a world's run events: derived, as dedupe.StreamConfig is.
func eventConfig(world string, retention time.Duration, limit int64, replicas int) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name:        EventStream(world),
		Description: "Run events (RunEvents v2.0.1), derived from the commit log of " + world,
		Subjects:    []string{EventSubject(world, "*", "*")},
		MaxAge:      retention,
		MaxMsgs:     limit,
		AllowDirect: replicas <= 1,
		Replicas:    max(replicas, 1),
		Duplicates:  100 * time.Millisecond, // the least; guards do its work, and it stalls a follower
	}
	if replicas <= 1 {
		config.PersistMode = jetstream.AsyncPersistMode
	} else {
		config.Duplicates = time.Second // there it keeps the messages of racing followers apart
	}
	return config
}

// deriveReceipts returns what makes the receipt of an accepted handoff's log message.
func deriveReceipts(world string) func(jetstream.Msg) ([]*nats.Msg, error) {
	return func(msg jetstream.Msg) ([]*nats.Msg, error) {
		if recordKind(msg.Headers().Get(kindHeader)) != kindHandoff {
			return nil, nil
		}
		var rec struct {
			Result jsontext.Value `json:"result"`
		}
		if err := json.Unmarshal(msg.Data(), &rec); err != nil {
			return nil, fmt.Errorf("worldengine: not a commit record: %w", err)
		}
		var ids struct {
			ResultID       string `json:"resultId"`
			HandoffID      string `json:"handoffId"`
			IdempotencyKey string `json:"idempotencyKey"`
		}
		if err := json.Unmarshal(rec.Result, &ids); err != nil {
			return nil, fmt.Errorf("worldengine: a commit record without a result: %w", err)
		}
		receipt := dedupe.Receipt{
			Key: ids.IdempotencyKey, RunID: msg.Headers().Get(RunIDHeader),
			HandoffID: ids.HandoffID, ResultID: ids.ResultID, Result: rec.Result,
		}
		derived, err := receipt.Message(world)
		if err != nil {
			return nil, err
		}
		return []*nats.Msg{derived}, nil
	}
}

// deriveEvents returns what makes the run events of a log message. Their persistedAt is the time
// at which the log's stream stored the message: it is the append authority.
func deriveEvents(world string) func(jetstream.Msg) ([]*nats.Msg, error) {
	return func(msg jetstream.Msg) ([]*nats.Msg, error) {
		kind := recordKind(msg.Headers().Get(kindHeader))
		if kind == kindPut {
			return nil, nil
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("worldengine: a log message without metadata: %w", err)
		}
		var rec struct {
			TownID string         `json:"townId"`
			Run    *runevents.Run `json:"run"`
		}
		if err := json.Unmarshal(msg.Data(), &rec); err != nil {
			return nil, fmt.Errorf("worldengine: not a commit record: %w", err)
		}
		if rec.Run == nil {
			return nil, nil
		}
		messages, err := eventMessages(world, tokenOf(rec.TownID), rec.Run.Records(meta.Timestamp))
		if kind == kindEvents {
			for _, m := range messages {
				m.Header[kindHeader] = []string{string(kind)}
			}
		}
		return messages, err
	}
}

// eventMessages returns the bus messages of a run's records.
func eventMessages(world, token string, records []runevents.Record) ([]*nats.Msg, error) {
	messages := make([]*nats.Msg, len(records))
	for i := range records {
		body, err := records[i].AppendJSON(make([]byte, 0, 1024))
		if err != nil {
			return nil, fmt.Errorf("worldengine: event %s: %w", records[i].EventID, err)
		}
		messages[i] = &nats.Msg{
			Subject: EventSubject(world, token, records[i].RunID),
			Data:    body,
			Header: nats.Header{
				EventTypeHeader:       {string(records[i].EventType)},
				jetstream.MsgIDHeader: {records[i].EventID},
			},
		}
	}
	return messages, nil
}

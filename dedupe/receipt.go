// Package dedupe has the receipt of an idempotency key: the handoff that a town accepted with it, and the result. Import it
// to read receipts out of a world's log; an agent asks result.get instead, by client.Client.Result. It is pure and safe
// for concurrent use.
//
// A key belongs to its town: the same key in two towns is two keys. The log's record that accepted the key has the
// receipt, as long as the log keeps that record.
package dedupe

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/handoff"
)

// Receipt proves that a town accepted a key.
type Receipt struct {
	TownID, Key string
	LogSeq      uint64 // log sequence of the record, from 1
	RunID       string // the run that accepted the key
	HandoffID   string
	ResultID    string
	ReasonCode  handoff.ReasonCode
	// Result is the execution-result.v1, revision 0, as stored.
	Result jsontext.Value
	// Addition is the part of revision 1 that revision 0 lacks.
	Addition *handoff.Addition
}

// Read returns the receipt of a result in the record at a log sequence. It fails if the result is
// no execution-result.v1.
func Read(townID string, seq uint64, runID string, result jsontext.Value) (*Receipt, error) {
	var r struct {
		ResultID   string             `json:"resultId"`
		HandoffID  string             `json:"handoffId"`
		Key        string             `json:"idempotencyKey"`
		ReasonCode handoff.ReasonCode `json:"reasonCode"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, err
	}
	return &Receipt{
		TownID: townID, Key: r.Key, LogSeq: seq, RunID: runID, HandoffID: r.HandoffID,
		ResultID: r.ResultID, ReasonCode: r.ReasonCode, Result: result,
	}, nil
}

package feed

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/records"
	"worldengine/worldengine/messages"
)

// Message returns the commit message of a message of the log, as JSON. Its events have the same
// bytes as in a reply to run.events. It fails if the message is no readable commit.
func Message(msg *jetstream.RawStreamMsg) ([]byte, error) {
	rec, err := readRecord(msg)
	if err != nil {
		return nil, err
	}
	header, at := msg.Header, commitlog.PersistedAt(msg.Header, msg.Time)
	commit := messages.Commit{
		Cursor: strconv.FormatUint(msg.Sequence, 10), At: runevents.Timestamp(at),
		TownID: rec.TownID, Cause: records.KindOf(header).Cause(),
		RunID: layout.RunIDOf(header), Hash: header.Get(layout.HashHeader),
	}
	if commit.Hash != "" { // the record holds a town's state
		epoch := commitlog.EpochOf(header)
		commit.Revision, commit.Epoch = msg.Sequence, &epoch
	}
	head, err := json.Marshal(commit)
	if err != nil {
		return nil, fmt.Errorf("feed: a header is not UTF-8: %w", err)
	}
	var records []runevents.Record // nil is written as []
	if rec.Run != nil {
		records = rec.Run.Records(at)
	}
	events, err := json.Marshal(records)
	if err != nil {
		return nil, fmt.Errorf("feed: the events of run %s: %w", rec.Run.RunID, err)
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"events":`), events, []byte("}")), nil
}

func readRecord(msg *jetstream.RawStreamMsg) (*machine.Record, error) {
	if records.KindOf(msg.Header) == "" {
		return nil, errors.New("feed: the message has no header Kind")
	}
	rec, err := records.Read(msg.Data)
	if err != nil {
		return nil, err
	}
	if token := TownToken(msg.Subject, msg.Header); token != layout.TokenOf(rec.TownID) {
		return nil, fmt.Errorf("feed: the body is about the town %q, and its message about %q",
			rec.TownID, token)
	}
	return rec, nil
}

// TownToken returns the town token of a log message: "=world" if the message is about no town, and
// "" if neither the header nor the subject has a town token.
func TownToken(subject string, header nats.Header) string {
	return cmp.Or(header.Get(layout.TownTokenHeader), layout.LoggedTown(subject))
}

package commitlog

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bulkBytes bounds the answer to one request for several messages, and bulkTimeout its duration.
const (
	bulkBytes   = 1 << 20
	bulkTimeout = 5 * time.Second
)

// NextStoredBatch returns the first messages of a subject at or behind a sequence, in order. It
// returns at most so many, fewer if they are large or one was changed on the disk, and
// none if there is none. It makes one request if the stream allows direct reads (NATS 2.11,
// ADR-31); else, in a cluster, it reads one message from the leader.
func NextStoredBatch(
	ctx context.Context, js jetstream.JetStream, stream jetstream.Stream,
	subject string, seq uint64, most int,
) (messages []*jetstream.RawStreamMsg, err error) {
	if js == nil || most == 1 || !stream.CachedInfo().Config.AllowDirect {
		msg, err := Next(ctx, stream, subject, seq)
		if msg != nil {
			messages = append(messages, msg)
		}
		return messages, inLog(subject, err)
	}
	messages, err = directBatch(ctx, js, stream.CachedInfo().Config.Name, subject, seq, most)
	if isUndecodable(err) {
		return NextStoredBatch(ctx, nil, stream, subject, seq, 1)
	}
	return messages, inLog(subject, err)
}

// inLog adds to an error which messages could not be read.
func inLog(subject string, err error) error {
	if err != nil {
		err = fmt.Errorf("%w: messages of %s: %w", ErrLogUnavailable, subject, err)
	}
	return err
}

// directBatch makes a request for several messages of a stream.
func directBatch(
	ctx context.Context, js jetstream.JetStream, stream, subject string, seq uint64, most int,
) ([]*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]any{
		"seq": seq, "batch": most, "max_bytes": bulkBytes, "next_by_subj": subject,
	})
	if err != nil {
		return nil, err
	}
	nc := js.Conn()
	answers := make(chan *nats.Msg, most+1)
	sub, err := nc.ChanSubscribe(nc.NewInbox(), answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	api := cmp.Or(js.Options().APIPrefix, jetstream.DefaultAPIPrefix) + "DIRECT.GET." + stream
	err = nc.PublishRequest(api, sub.Subject, request)
	if err != nil {
		return nil, err
	}
	var messages []*jetstream.RawStreamMsg
	for {
		var msg *nats.Msg
		select {
		case msg = <-answers:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if len(msg.Header) == 0 && len(messages) == 0 {
			return nil, nats.ErrBadHeaderMsg
		}
		if len(msg.Header) == 0 { // the next batch begins with it
			return messages, nil
		}
		switch msg.Header.Get("Status") {
		case "":
		case "204", "404": // the end, or nothing
			return messages, nil
		case "503":
			return nil, nats.ErrNoResponders
		default:
			return nil, fmt.Errorf("status %s: %s", msg.Header.Get("Status"),
				msg.Header.Get("Description"))
		}
		stored, err := directMessage(msg)
		if err != nil {
			return nil, err
		}
		messages = append(messages, stored)
	}
}

// directMessage reads a message from an answer, whose headers identify it.
func directMessage(msg *nats.Msg) (*jetstream.RawStreamMsg, error) {
	seq, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("an answer without its sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, msg.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return nil, fmt.Errorf("an answer without its time: %w", err)
	}
	return &jetstream.RawStreamMsg{
		Subject: msg.Header.Get("Nats-Subject"), Sequence: seq, Header: msg.Header,
		Data: msg.Data, Time: at,
	}, nil
}

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

// bulkBytes bounds the answer to one request for several messages, and bulkTimeout the wait for
// that answer.
const (
	bulkBytes   = 1 << 20
	bulkTimeout = 5 * time.Second
)

// NextBatch returns up to most messages of a stream from a sequence on, in order. It returns fewer
// if they are large or one was changed on the disk, and none after the last message. If the stream
// allows direct reads (NATS 2.11, ADR-31), one request reads them. Else, as in a cluster, NextBatch
// reads one message from the leader. The error is ErrLogUnavailable.
func NextBatch(
	ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, seq uint64, most int,
) (messages []*jetstream.RawStreamMsg, err error) {
	config := &stream.CachedInfo().Config
	bulk := config.AllowDirect && most > 1
	if bulk {
		messages, err = directBatch(ctx, js, config.Name, seq, most)
	}
	if !bulk || isUndecodable(err) {
		var msg *jetstream.RawStreamMsg
		if msg, err = (StreamStore{Stream: stream}).Next(ctx, ">", seq); msg != nil {
			messages = append(messages, msg)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: stream %s from sequence %d: %w", ErrLogUnavailable, config.Name,
			seq, err)
	}
	return messages, nil
}

// directBatch is NextBatch by one request.
func directBatch(
	ctx context.Context, js jetstream.JetStream, stream string, seq uint64, most int,
) (messages []*jetstream.RawStreamMsg, err error) {
	ctx, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]any{
		"next_by_subj": ">", "seq": seq, "batch": most, "max_bytes": bulkBytes,
	})
	if err != nil {
		return nil, err
	}
	nc := js.Conn()
	answers := make(chan *nats.Msg, most+1) // SubscribeSync would make room for 65,536
	sub, err := nc.ChanSubscribe(nc.NewInbox(), answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	api := cmp.Or(js.Options().APIPrefix, jetstream.DefaultAPIPrefix) + "DIRECT.GET." + stream
	if err := nc.PublishRequest(api, sub.Subject, request); err != nil {
		return nil, err
	}
	for {
		var msg *nats.Msg
		select {
		case msg = <-answers:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		status := msg.Header.Get("Status")
		switch {
		case len(msg.Header) == 0 && len(messages) == 0:
			return nil, nats.ErrBadHeaderMsg
		case len(msg.Header) == 0: // the next batch begins with msg
			return messages, nil
		case status == "204", status == "404": // the end, or no message
			return messages, nil
		case status == "503":
			return nil, nats.ErrNoResponders
		case status != "":
			return nil, fmt.Errorf("status %s: %s", status, msg.Header.Get("Description"))
		}
		stored, err := directMessage(msg)
		if err != nil {
			return nil, err
		}
		messages = append(messages, stored)
	}
}

// directMessage reads a stored message from an answer, by the answer's headers.
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

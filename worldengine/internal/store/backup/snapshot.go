package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/internal/kit/backoff"
)

// Bounds of data in transit. NATS sends at most windowSize bytes of chunks that are not
// acknowledged yet.
const (
	chunkSize  = 128 << 10
	windowSize = 4 << 20
	// idleTimeout bounds the wait for the next chunk or for an answer, and storeTimeout the wait until
	// NATS has stored a chunk.
	idleTimeout  = 30 * time.Second
	storeTimeout = 5 * time.Minute
)

// snapshot is JetStream's first answer about a snapshot, and the content of configFile.
type snapshot struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// copySnapshot writes a stream's snapshot to w, chunk by chunk. If written is not nil, copySnapshot
// calls it after each chunk, with the number of bytes so far. A chunk is acknowledged only when it
// is written, so NATS sends no faster than that.
func copySnapshot(
	ctx context.Context, nc *nats.Conn, stream string, w io.Writer,
	written func(stream string, bytes int64),
) (*snapshot, error) {
	chunks, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = chunks.Unsubscribe() }()
	if err := chunks.SetPendingLimits(-1, 2*windowSize); err != nil {
		return nil, err
	}
	var begun snapshot
	err = callAPI(ctx, nc, "$JS.API.STREAM.SNAPSHOT."+stream, map[string]any{
		"deliver_subject": chunks.Subject, "no_consumers": true,
		"chunk_size": min(chunkSize, nc.MaxPayload()), "window_size": windowSize,
	}, &begun)
	if err != nil {
		return nil, err
	}
	bytes := int64(0)
	for index := 1; ; index++ {
		chunk, err := nextChunk(ctx, chunks, index)
		if err != nil {
			return nil, fmt.Errorf("%w: %s, chunk %d: %w", ErrIncomplete, stream, index, err)
		}
		if chunk == nil {
			return &begun, nil
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return nil, err
		}
		if bytes += int64(len(chunk.Data)); written != nil {
			written(stream, bytes)
		}
		if chunk.Reply != "" { // the last chunk has none
			if err := chunk.Respond(nil); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrIncomplete, stream, err)
			}
		}
	}
}

// nextChunk waits for the chunk with an index. It returns nil after the last one.
func nextChunk(
	ctx context.Context, chunks *nats.Subscription, index int,
) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	chunk, err := chunks.NextMsgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	if len(chunk.Data) == 0 {
		status := chunk.Header.Get("Status")
		if status != "" && status != "204" {
			err = fmt.Errorf("NATS ended the snapshot with %s %s", status,
				chunk.Header.Get("Description"))
		}
		return nil, err
	}
	end := fmt.Sprintf(".%d.%d", len(chunk.Data), index) // of the reply subject of a chunk
	if chunk.Reply != "" && !strings.HasSuffix(chunk.Reply, end) {
		return nil, fmt.Errorf("another chunk arrived: %s", chunk.Reply)
	}
	return chunk, nil
}

func callAPI(ctx context.Context, nc *nats.Conn, subject string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return call(ctx, nc, idleTimeout, subject, body, reply)
}

// call makes a request, and reads the answer unless it is empty. If nobody responds, call makes the
// request again: in a cluster another server than ours may restore the stream, and subscribe a
// moment later.
func call(
	ctx context.Context, nc *nats.Conn, within time.Duration, subject string, body []byte, reply any,
) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, subject, body)
	for tries := 0; errors.Is(err, nats.ErrNoResponders) && tries < 100; tries++ {
		_ = backoff.Sleep(ctx, 20*time.Millisecond) // if ctx is done, the request fails
		msg, err = nc.RequestWithContext(ctx, subject, body)
	}
	if err == nil && len(msg.Data) > 0 {
		var failed struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err = json.Unmarshal(msg.Data, &failed); err == nil && failed.Error != nil {
			err = failed.Error
		}
		if err == nil {
			err = json.Unmarshal(msg.Data, reply)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	return nil
}

// restoreSnapshot restores a stream from a snapshot, and returns the stream's new state. state is
// the stream's state when the snapshot began.
func restoreSnapshot(
	ctx context.Context, nc *nats.Conn, config *jetstream.StreamConfig, state json.RawMessage,
	r io.Reader,
) (jetstream.StreamState, error) {
	var to struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	var made jetstream.StreamInfo
	err := callAPI(ctx, nc, "$JS.API.STREAM.RESTORE."+config.Name,
		map[string]any{"config": config, "state": state}, &to)
	chunk := make([]byte, min(chunkSize, nc.MaxPayload()))
	for n := 1; err == nil && n > 0; {
		n, err = io.ReadFull(r, chunk)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = nil
		}
		if err == nil { // an empty chunk ends the stream; the answer to it has the stream's state
			err = call(ctx, nc, storeTimeout, to.DeliverSubject, chunk[:n], &made)
		}
	}
	return made.State, err
}

// visitor visits a message of a snapshot. entry has the message's subject and sequence, and the
// size of the headers, with which content begins. A visitor need not read content.
type visitor func(entry *archive.Header, content io.Reader) error

// errOtherFormat: a snapshot does not begin as this program expects.
var errOtherFormat = errors.New("backup: this NATS writes snapshots in another format, as earlier " +
	"versions do: update nats-server; 2.15.2 was tried")

// readArchive counts a snapshot's messages, and visits each one. A mark after the last message
// proves that the snapshot is whole.
func readArchive(path string, visit visitor) (messages uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	entries := archive.NewReader(s2.NewReader(f))
	for first := true; ; first = false {
		entry, err := entries.Next()
		if first && errors.Is(err, archive.ErrInvalidArchive) {
			return 0, fmt.Errorf("%w: %s", errOtherFormat, path)
		}
		if err == nil && entry.Name == "" && entry.Sequence == 0 {
			return messages, nil
		}
		if err == nil && entry.Sequence > 0 {
			messages++
			err = visit(entry, entries)
		}
		if err != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrIncomplete, path, err)
		}
	}
}

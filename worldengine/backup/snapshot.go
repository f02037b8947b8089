package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/backoff"
)

// Bounds of data in transit. NATS sends chunks of a snapshot ahead of their acknowledgement, up to
// the window: no more waits here.
const (
	chunkSize  = 128 << 10
	windowSize = 4 << 20
	// idleTimeout bounds the wait for the next chunk, or for an answer.
	idleTimeout = 30 * time.Second
)

// snapshot is the beginning of JetStream's snapshot of a stream, and the content of configFile.
type snapshot struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// state is the part of a stream's state that is read.
type state struct {
	Messages uint64 `json:"messages"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
}

// takeSnapshot writes a stream's snapshot to w, chunk by chunk, and calls written, unless nil, with
// the bytes so far. It acknowledges a chunk when it is written, so that NATS does not send faster.
func takeSnapshot(
	ctx context.Context, nc *nats.Conn, stream string, w io.Writer,
	written func(stream string, bytes int64),
) (*snapshot, error) {
	inbox := nc.NewInbox()
	chunks, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = chunks.Unsubscribe() }()
	if err := chunks.SetPendingLimits(-1, 2*windowSize); err != nil {
		return nil, err
	}
	var begun snapshot
	err = call(ctx, nc, "$JS.API.STREAM.SNAPSHOT."+stream, map[string]any{
		"deliver_subject": inbox, "no_consumers": true,
		"chunk_size": min(chunkSize, nc.MaxPayload()), "window_size": windowSize,
	}, &begun)
	if err != nil {
		return nil, err
	}
	bytes := int64(0)
	for index := 1; ; index++ {
		chunk, err := nextChunk(ctx, chunks)
		if err != nil {
			return nil, fmt.Errorf("%w: %s, chunk %d: %w", ErrIncomplete, stream, index, err)
		}
		if len(chunk.Data) == 0 {
			return &begun, ended(stream, chunk)
		}
		if chunk.Reply != "" && !isChunk(chunk, index) {
			return nil, fmt.Errorf("%w: %s, chunk %d: another one arrived: %s", ErrIncomplete,
				stream, index, chunk.Reply)
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return nil, err
		}
		if bytes += int64(len(chunk.Data)); written != nil {
			written(stream, bytes)
		}
		if chunk.Reply != "" { // the last one has none
			if err := chunk.Respond(nil); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrIncomplete, stream, err)
			}
		}
	}
}

func nextChunk(ctx context.Context, chunks *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	return chunks.NextMsgWithContext(ctx)
}

// isChunk reports whether a chunk has an index: its reply subject ends in its size and index.
func isChunk(chunk *nats.Msg, index int) bool {
	return strings.HasSuffix(chunk.Reply, "."+strconv.Itoa(len(chunk.Data))+"."+strconv.Itoa(index))
}

// ended reads the message behind the last chunk, which reports whether that was the end.
func ended(stream string, msg *nats.Msg) error {
	if status := msg.Header.Get("Status"); status != "" && status != "204" {
		return fmt.Errorf("%w: %s: NATS ended it with %s %s", ErrIncomplete, stream, status,
			msg.Header.Get("Description"))
	}
	return nil
}

// call makes a request to JetStream's API.
func call(ctx context.Context, nc *nats.Conn, subject string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	return answer(subject, msg.Data, reply)
}

// answer reads an answer of JetStream's API.
func answer(subject string, data []byte, reply any) error {
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(data, &failed); err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	if failed.Error != nil {
		return fmt.Errorf("%s: %w", subject, failed.Error)
	}
	return json.Unmarshal(data, reply)
}

// visitor gets a message of a snapshot: entry has its subject, its sequence, and the size of the
// headers that begin content. It need not read the rest.
type visitor func(entry *archive.Header, content io.Reader) error

// readArchive counts a snapshot's messages up to the mark behind the last one, which proves that it
// is whole. visit, unless nil, gets each of them.
func readArchive(path string, visit visitor) (messages uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	entries := archive.NewReader(s2.NewReader(f))
	for {
		entry, err := entries.Next()
		if err != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrIncomplete, path, err)
		}
		if entry.Name == "" && entry.Sequence == 0 {
			return messages, nil
		}
		if entry.Sequence == 0 {
			continue
		}
		messages++
		if visit == nil {
			continue
		}
		if err := visit(entry, entries); err != nil {
			return 0, fmt.Errorf("%w: %s: %w", ErrIncomplete, path, err)
		}
	}
}

// restoreSnapshot restores a stream from a snapshot, and returns its state.
func restoreSnapshot(
	ctx context.Context, nc *nats.Conn, config *jetstream.StreamConfig,
	begun *snapshot, r io.Reader,
) (*state, error) {
	var to struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	request := map[string]any{"config": config, "state": begun.State}
	if err := call(ctx, nc, "$JS.API.STREAM.RESTORE."+config.Name, request, &to); err != nil {
		return nil, err
	}
	chunk := make([]byte, min(chunkSize, nc.MaxPayload()))
	for {
		n, err := io.ReadFull(r, chunk)
		if err == io.EOF {
			break
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return nil, err
		}
		if err := deliver(ctx, nc, to.DeliverSubject, chunk[:n], nil); err != nil {
			return nil, err
		}
	}
	var made struct {
		State state `json:"state"`
	}
	if err := deliver(ctx, nc, to.DeliverSubject, nil, &made); err != nil {
		return nil, err
	}
	return &made.State, nil
}

// deliver sends a chunk; the empty one is the end, and its answer the stream. In a cluster another
// server than ours may restore, and know of it a moment later: a chunk that no server took is sent
// again.
func deliver(ctx context.Context, nc *nats.Conn, subject string, chunk []byte, made any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*idleTimeout)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, subject, chunk)
	for tries := 0; errors.Is(err, nats.ErrNoResponders) && tries < 100; tries++ {
		_ = backoff.Sleep(ctx, 20*time.Millisecond) // the request finds that ctx is done
		msg, err = nc.RequestWithContext(ctx, subject, chunk)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	if len(msg.Data) == 0 {
		return nil // one chunk of several
	}
	if made == nil {
		made = new(struct{})
	}
	return answer(subject, msg.Data, made)
}

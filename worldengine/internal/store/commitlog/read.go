package commitlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Store reads and writes the stream of a log message by message. Its errors are JetStream's. It is
// safe for concurrent use.
type Store interface {
	// Publish stores a message, if the guards in its headers hold.
	Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error)
	// At returns the message at a sequence, Last the last message of a subject, and Next the first
	// message of a subject at or after a sequence; nil if there is none.
	At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error)
	Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error)
	Next(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, error)
	// End returns the sequence of the last message on any subject, as the leader of the stream has
	// it.
	End(ctx context.Context) (uint64, error)
}

// NewStore returns the Store on the stream of a log. grouped selects a GroupedStore, for a server
// that syncs each append to the disk.
func NewStore(js jetstream.JetStream, stream jetstream.Stream, grouped bool) Store {
	store := StreamStore{JetStream: js, Stream: stream}
	if stream != nil {
		store.Identity = Identity(stream.CachedInfo().Config)
	}
	if grouped {
		return &GroupedStore{StreamStore: store, timeout: appendTimeout}
	}
	return &store
}

// StreamStore is a Store on any JetStream stream. A message with undecodable headers is returned
// without headers, as by a consumer. JetStream may be nil if nothing is published.
type StreamStore struct {
	JetStream jetstream.JetStream
	Stream    jetstream.Stream
	Identity  string // of the log to which Publish appends; "" if it has none
}

// Publish implements Store.
func (s StreamStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	return s.JetStream.PublishMsg(ctx, withIdentity(msg, s.Identity))
}

// At implements Store.
func (s StreamStore) At(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	return s.get(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.Stream.GetMsg(ctx, seq)
	}, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq,
	})
}

// Next implements Store.
func (s StreamStore) Next(
	ctx context.Context, subject string, from uint64,
) (*jetstream.RawStreamMsg, error) {
	return s.get(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.Stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(subject))
	}, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1),
		FilterSubject: subject,
	})
}

// Last implements Store. It returns ErrUnreadable if the stream counts a message of the subject and
// does not deliver it.
func (s StreamStore) Last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	msg, err := s.last(ctx, subject)
	if msg != nil || err != nil {
		return msg, err
	}
	info, err := LeaderInfo(ctx, s.Stream, jetstream.WithSubjectFilter(subject))
	if err != nil || len(info.State.Subjects) == 0 {
		return nil, err
	}
	// The message may have come after the first read; then the second read has it.
	if msg, err = s.last(ctx, subject); msg == nil && err == nil {
		err = ErrUnreadable
	}
	return msg, err
}

// last returns the last message of a subject that the stream delivers.
func (s StreamStore) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return s.get(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.Stream.GetLastMsgForSubject(ctx, subject)
	}, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPolicy, FilterSubject: subject,
	})
}

// End implements Store. The end is the leader's: see LeaderInfo.
func (s StreamStore) End(ctx context.Context) (uint64, error) {
	info, err := LeaderInfo(ctx, s.Stream)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// get returns the answer to a request for a message, by retryUnanswered; nil if there is no such message. If the
// client cannot decode the headers of the message, a consumer reads it.
func (s StreamStore) get(
	ctx context.Context, request func(ctx context.Context) (*jetstream.RawStreamMsg, error),
	config jetstream.ConsumerConfig,
) (msg *jetstream.RawStreamMsg, err error) {
	err = retryUnanswered(ctx, func(ctx context.Context) (err error) {
		msg, err = request(ctx)
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if !isUndecodable(err) {
		return msg, err
	}
	r := newScan(s.Stream, config)
	next, stop := iter.Pull(r.messages(ctx, 1))
	defer stop()
	if msg, found := next(); found {
		return msg, nil
	}
	return nil, errors.Join(err, r.err)
}

// isUndecodable reports whether a message's headers cannot be decoded. On direct reads the client's
// error then says that the answer lacks headers.
func isUndecodable(err error) bool {
	return errors.Is(err, nats.ErrBadHeaderMsg) ||
		err != nil && strings.Contains(err.Error(), "response should have headers")
}

// subjectsTimeout bounds the time in which NATS lists a log's subjects: a million takes some 20 s.
const subjectsTimeout = 5 * time.Minute

// SubjectsOf returns the log's subjects that match filters, with their numbers of messages.
func SubjectsOf(
	ctx context.Context, log jetstream.Stream, filters ...string,
) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, subjectsTimeout) // in place of the client's 5 s
	defer cancel()
	subjects := map[string]uint64{}
	for _, filter := range filters {
		info, err := LeaderInfo(ctx, log, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, fmt.Errorf("subjects of the log: %w", err)
		}
		maps.Copy(subjects, info.State.Subjects)
	}
	return subjects, nil
}

// LastSequence returns the sequence of the last message of a subject, which need not be readable.
func LastSequence(ctx context.Context, stream jetstream.Stream, subject string) (uint64, error) {
	// A new consumer that begins with the last message stands before it, even if it is unreadable.
	consumer, err := createConsumer(ctx, stream, "", jetstream.ConsumerConfig{
		FilterSubject: subject, DeliverPolicy: jetstream.DeliverLastPolicy,
	})
	if err != nil {
		return 0, err
	}
	defer DeleteConsumer(stream, consumer)
	return consumer.CachedInfo().Delivered.Stream + 1, nil
}

// DeleteConsumer deletes a consumer that has read a stream once; Consumer.Stop does not.
func DeleteConsumer(stream jetstream.Stream, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if info := consumer.CachedInfo(); info != nil {
		_ = stream.DeleteConsumer(ctx, info.Name) // else the server deletes it
	}
}

// HeartbeatInterval is the interval at which NATS confirms that it still serves an idle reader. After two
// missing heartbeats the reader asks again: in a cluster the first request to a new consumer may
// get lost, and a consumer ends with its node.
const HeartbeatInterval = 500 * time.Millisecond

// RawMessage returns a consumer's message as its stream stores it, and its number in the consumer.
func RawMessage(msg jetstream.Msg) (*jetstream.RawStreamMsg, uint64, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, 0, fmt.Errorf("commitlog: a message without metadata: %w", err)
	}
	return &jetstream.RawStreamMsg{
		Subject: msg.Subject(), Sequence: meta.Sequence.Stream, Header: msg.Headers(),
		Data: msg.Data(), Time: meta.Timestamp.UTC(),
	}, meta.Sequence.Consumer, nil
}

// fetchTimeout is how long a fetch waits for a message. If none comes, the remaining ones were changed on the
// disk: NATS counts them, but cannot deliver them.
const fetchTimeout = time.Second

// Bounds of a fetch, and the tries in a row that may bring nothing.
const (
	fetchMessages = 1000
	fetchBodies   = 512
	fetchBytes    = 8 << 20
	fetchTries    = 5
)

// ScanHeaders visits, once and without bodies, the present messages of a stream after a sequence. It omits
// messages that were changed on the disk of NATS. upTo is how far it has come, if there is no error:
// maybe less far than the end that another request has named. The error is visit's, or
// ErrLogUnavailable.
func ScanHeaders(
	ctx context.Context, stream jetstream.Stream, behind uint64,
	visit func(msg *jetstream.RawStreamMsg) error,
) (upTo uint64, err error) {
	r := newScan(stream, jetstream.ConsumerConfig{HeadersOnly: true})
	return r.each(ctx, behind, fetchMessages, visit)
}

// ScanMessages is ScanHeaders for all messages of a stream, with bodies of up to largest bytes.
func ScanMessages(
	ctx context.Context, stream jetstream.Stream, largest int64,
	visit func(msg *jetstream.RawStreamMsg) error,
) error {
	r := newScan(stream, jetstream.ConsumerConfig{},
		jetstream.FetchMaxBytes(max(fetchBytes, 2*int(largest))))
	_, err := r.each(ctx, 0, fetchBodies, visit)
	return err
}

// ScanLast is ScanHeaders for the last message of each subject that matches one of the filters. After a
// message that was changed on the disk, it reads subject by subject, and also visits messages that
// came meanwhile.
func ScanLast(
	ctx context.Context, stream jetstream.Stream, filters []string,
	visit func(msg *jetstream.RawStreamMsg) error,
) error {
	r := newScan(stream, jetstream.ConsumerConfig{HeadersOnly: true, FilterSubjects: filters,
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy})
	for msg := range r.messages(ctx, fetchMessages) {
		if err := visit(msg); err != nil {
			return err
		}
	}
	if r.complete || r.err != nil {
		return r.wrapError(r.err)
	}
	subjects, err := SubjectsOf(ctx, stream, filters...)
	if err != nil {
		return err
	}
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		msg, err := StreamStore{Stream: stream}.last(ctx, subject)
		if err != nil {
			return r.wrapError(err)
		}
		if msg == nil || msg.Sequence <= r.last {
			continue
		}
		if err := visit(msg); err != nil {
			return err
		}
	}
	return nil
}

// ScanSubject visits, once, the messages of a subject at or after a sequence, without bodies if
// headersOnly is set. whole is set if NATS delivered all that it counts: others were changed on its
// disk. The error is visit's, or ErrLogUnavailable.
func ScanSubject(
	ctx context.Context, stream jetstream.Stream, subject string, from uint64, headersOnly bool,
	visit func(msg *jetstream.RawStreamMsg) error,
) (whole bool, err error) {
	r := newScan(stream, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1),
		FilterSubject: subject, HeadersOnly: headersOnly,
	}, jetstream.FetchMaxBytes(fetchBytes))
	for msg := range r.messages(ctx, fetchBodies) {
		if err := visit(msg); err != nil {
			return false, err
		}
	}
	return r.complete, r.wrapError(r.err)
}

// Bounds of a batch. Up to fewMessages are read one by one; to read more, a consumer is faster.
const (
	fewMessages = 16
	batchBytes  = 1 << 20
)

// NextBatch returns up to most messages of a stream from a sequence on, in order. It returns fewer
// if they are large or one was changed on the disk, and none after the last message. Of a replicated
// stream it reads one message, since a cluster takes long to make a consumer. The error is
// ErrLogUnavailable.
func NextBatch(
	ctx context.Context, stream jetstream.Stream, seq uint64, limit int,
) (messages []*jetstream.RawStreamMsg, err error) {
	if limit > fewMessages && stream.CachedInfo().Config.Replicas <= 1 {
		r := newScan(stream, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seq,
		}, jetstream.FetchMaxBytes(batchBytes))
		bytes := 0
		for msg := range r.messages(ctx, uint64(limit)) {
			messages, bytes = append(messages, msg), bytes+len(msg.Data)
			if len(messages) == limit || bytes > batchBytes {
				break
			}
		}
		if len(messages) > 0 {
			return messages, nil
		}
	}
	msg, err := StreamStore{Stream: stream}.Next(ctx, ">", seq)
	if err != nil {
		return nil, fmt.Errorf("%w: stream %s from sequence %d: %w", ErrLogUnavailable,
			stream.CachedInfo().Config.Name, seq, err)
	}
	if msg != nil {
		messages = append(messages, msg)
	}
	return messages, nil
}

// scan reads messages of a stream once. It does not use JetStream's ordered consumers. These are
// made again for each batch, and from the second batch on deliver all later messages, even if only
// the last of each subject is wanted.
type scan struct {
	stream  jetstream.Stream
	config  jetstream.ConsumerConfig
	options []jetstream.FetchOpt
	node    string // whose replica is read; "" for the leader
	last    uint64 // the sequence of the last message that was read
	// complete is set if the last consumer delivered all that it counted, and err if it failed.
	complete bool
	err      error
}

func newScan(
	stream jetstream.Stream, config jetstream.ConsumerConfig, options ...jetstream.FetchOpt,
) *scan {
	return &scan{stream: stream, config: config,
		options: append([]jetstream.FetchOpt{jetstream.FetchMaxWait(fetchTimeout)}, options...)}
}

// errGap means that a batch was not delivered whole.
var errGap = errors.New("messages were lost on their way")

// messages reads the messages of a new consumer, atOnce at a time, and sets whole or err.
func (r *scan) messages(ctx context.Context, atOnce uint64) iter.Seq[*jetstream.RawStreamMsg] {
	return func(yield func(*jetstream.RawStreamMsg) bool) {
		var consumer jetstream.Consumer
		if consumer, r.err = createConsumer(ctx, r.stream, r.node, r.config); r.err != nil {
			return
		}
		defer DeleteConsumer(r.stream, consumer)
		r.complete = false
		for read, pending := uint64(0), consumer.CachedInfo().NumPending; read < pending; {
			if r.err = ctx.Err(); r.err != nil { // Fetch does not know ctx
				return
			}
			var batch jetstream.MessageBatch
			batch, r.err = consumer.Fetch(int(min(pending-read, atOnce)), r.options...)
			if r.err != nil {
				return
			}
			before := read
			for delivered := range batch.Messages() {
				msg, number, err := RawMessage(delivered)
				if read++; err == nil && number != read {
					err = errGap
				}
				if r.err = err; err != nil {
					return
				}
				r.last = msg.Sequence
				if !yield(msg) {
					return
				}
			}
			if read == before {
				r.err = batch.Error()
				return
			}
		}
		r.complete = true
	}
}

// each visits the messages after a sequence, atOnce at a time. upTo is how far it has come.
func (r *scan) each(
	ctx context.Context, behind, atOnce uint64, visit func(msg *jetstream.RawStreamMsg) error,
) (upTo uint64, err error) {
	store := StreamStore{Stream: r.stream}
	end, err := store.End(ctx)
	if err != nil {
		return 0, r.wrapError(err)
	}
	r.config.DeliverPolicy, r.last = jetstream.DeliverByStartSequencePolicy, behind
	for try := 1; ; try++ {
		before := r.last
		r.config.OptStartSeq = before + 1
		for msg := range r.messages(ctx, atOnce) {
			if err := visit(msg); err != nil {
				return 0, err
			}
		}
		switch {
		case r.err != nil && (try >= fetchTries || ctx.Err() != nil):
			return 0, r.wrapError(cmp.Or(ctx.Err(), r.err))
		case r.err == nil && r.last >= end:
			return r.last, nil
		case r.err == nil:
			// NATS does not deliver messages that were changed on its disk, nor the messages behind
			// them until it has searched their block.
			msg, err := nextBefore(ctx, store, r.last+1, end)
			if err != nil {
				return 0, r.wrapError(err)
			}
			if msg == nil {
				return r.last, nil
			}
			r.last = msg.Sequence
			if err := visit(msg); err != nil {
				return 0, err
			}
		}
		if r.last > before {
			try = 0
		}
	}
}

// nextBefore returns the first message at or after a sequence, nil if there is none up to end, at
// which the stream has been. A leader that has not applied a message yet also answers that there is
// none, so its own end is asked too. If that is before end, the error is ErrLogUnavailable.
func nextBefore(
	ctx context.Context, store Store, from, end uint64,
) (*jetstream.RawStreamMsg, error) {
	msg, err := store.Next(ctx, ">", from)
	if msg != nil || err != nil {
		return msg, err
	}
	now, err := store.End(ctx)
	if err == nil && now < end {
		err = fmt.Errorf("its leader is at sequence %d, and the stream has been at %d", now, end)
	}
	if err != nil {
		return nil, err
	}
	return store.Next(ctx, ">", from)
}

// wrapError wraps the error of a scan that NATS broke off; nil for nil.
func (r *scan) wrapError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: stream %s: %w", ErrLogUnavailable, r.stream.CachedInfo().Config.Name, err)
}

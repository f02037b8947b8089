package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// GroupedStore is a Store on the log of a server that syncs each append to the disk before it
// answers. If many appends wait, it stores them as one atomic batch, which the server syncs once.
// If few wait, each goes by itself, since a batch costs extra system calls. Each message of a batch
// has its own guard. If NATS refuses a batch, such as for one guard that does not hold, the store
// appends its messages one by one. They then wait for one more answer of NATS, which Log.OnAppendTried
// includes.
//
// The stream must allow atomic batches.
type GroupedStore struct {
	StreamStore
	timeout time.Duration // of a batch

	mu      sync.Mutex
	singles int  // appends on their way by themselves
	batched bool // a batch is on its way
	waiting []*waitingAppend
}

// minBatch is the size of the smallest batch, and the most single appends under way. maxBatch is
// a little less than NATS's largest batch. maxBatchBytes bounds a batch's payload, since a batch gets
// no more time than a single append.
const (
	minBatch      = 16
	maxBatch      = 256
	maxBatchBytes = 4 << 20
)

// waitingAppend is an append that waits for its turn, or for the answer to its batch.
type waitingAppend struct {
	msg   *nats.Msg
	alone chan bool // gets one value: true if the append has to go by itself
	ack   *jetstream.PubAck
	err   error // ack and err are the batch's answer
}

// Publish implements Store. It waits for the turn of the message, and for the answer to a batch,
// even after ctx is done: each takes at most appendTimeout.
func (s *GroupedStore) Publish(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	own := &waitingAppend{msg: msg, alone: make(chan bool, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, own)
	s.next()
	s.mu.Unlock()
	if alone := <-own.alone; !alone {
		return own.ack, own.err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.singles--
		s.next()
	}()
	return s.StreamStore.Publish(ctx, msg)
}

// next gives waiting appends their turn. The caller holds the lock.
func (s *GroupedStore) next() {
	for len(s.waiting) > 0 && !s.batched {
		if n := len(s.waiting); n >= minBatch {
			batch := s.dequeue(min(n, maxBatch))
			s.batched = true
			go s.storeBatch(batch)
			return
		}
		if s.singles >= minBatch {
			return
		}
		w := s.dequeue(1)[0]
		s.singles++
		w.alone <- true
	}
}

// dequeue removes the first n waiting appends, or as many as fit into maxBatchBytes, but at least one.
func (s *GroupedStore) dequeue(n int) []*waitingAppend {
	bytes := 0
	for i, w := range s.waiting[:n] {
		if bytes += len(w.msg.Data); i > 0 && bytes > maxBatchBytes {
			n = i
			break
		}
	}
	taken := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n) // Delete clears the freed places
	return taken
}

// storeBatch stores messages together, or lets each go by itself.
func (s *GroupedStore) storeBatch(batch []*waitingAppend) {
	last, err := s.publishBatch(batch)
	s.mu.Lock()
	defer s.mu.Unlock()
	isRefused := isBatchRefused(err)
	for i, w := range batch {
		switch {
		case isRefused:
			s.singles++
		case err != nil:
			w.err = err
		default:
			w.ack = &jetstream.PubAck{
				Stream: last.Stream, Sequence: last.Sequence - uint64(len(batch)-1-i),
			}
		}
		w.alone <- isRefused
	}
	s.batched = false
	s.next()
}

// publishBatch returns the ack of the last message; the others have the sequences right before it.
// After an error for which isBatchRefused holds nothing is stored. Any other error leaves the batch in doubt.
func (s *GroupedStore) publishBatch(batch []*waitingAppend) (*jetstreamext.BatchAck, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	messages := make([]*nats.Msg, len(batch))
	for i, w := range batch {
		// The caller's message stays unchanged: it may be appended again, alone.
		msg := &nats.Msg{Subject: w.msg.Subject, Data: w.msg.Data, Header: maps.Clone(w.msg.Header)}
		messages[i] = withIdentity(msg, s.Identity)
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, s.JetStream, messages, jetstreamext.BatchFlowControl{})
	if err != nil {
		return nil, fmt.Errorf("commitlog: a batch of %d appends: %w", len(batch), err)
	}
	return ack, nil
}

// isBatchRefused reports whether NATS has stored nothing of a batch: it refused the batch, or did not get its end.
func isBatchRefused(err error) bool {
	_, refused := errors.AsType[*jetstream.APIError](err)
	return refused || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrNoResponders)
}

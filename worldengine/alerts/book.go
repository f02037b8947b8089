package alerts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// book is a copy of the stream of alerts, so that a page of them costs the same wherever the stream
// keeps them: between two that it keeps there may be millions that it does not keep any more.
type book struct {
	mu      sync.Mutex
	created time.Time // when the stream was made: another one has other sequences
	last    uint64    // sequence up to which it was read
	alerts  []booked  // the oldest first
	acks    map[uint64]*Acknowledgement
}

type booked struct {
	Stored
	stored time.Time
}

// read brings the copy up to date with the stream of a world. The caller holds mu.
func (b *book) read(
	ctx context.Context, stream jetstream.Stream, world string, now time.Time,
) error {
	info := stream.CachedInfo()
	if !b.created.Equal(info.Created) || b.last > info.State.LastSeq {
		b.created, b.last, b.alerts = info.Created, 0, nil
		b.acks = map[uint64]*Acknowledgement{}
	}
	for b.last < info.State.LastSeq {
		msg, err := stream.GetMsg(ctx, b.last+1, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			b.last = info.State.LastSeq
			break
		}
		if err != nil {
			return fmt.Errorf("%w: message %d: %w", ErrUnavailable, b.last+1, err)
		}
		b.last = msg.Sequence
		b.take(msg, world)
	}
	b.prune(info.State.FirstSeq, now)
	return nil
}

// take takes in a message: an alert, an acknowledgement, or nothing that a server wrote.
func (b *book) take(msg *jetstream.RawStreamMsg, world string) {
	if seq, ok := strings.CutPrefix(msg.Subject, wire.AcknowledgedSubject(world, "")); ok {
		if of, err := strconv.ParseUint(seq, 10, 64); err == nil {
			b.acks[of] = acknowledgementOf(msg)
		}
		return
	}
	if alert := storedOf(msg, world); alert != nil {
		b.alerts = append(b.alerts, booked{*alert, msg.Time})
	}
}

// prune drops the alerts that the stream drops: by age, beyond Kept of a code, and before its first
// message.
func (b *book) prune(first uint64, now time.Time) {
	ofCode := map[runevents.AlertCode]int{}
	for i := range b.alerts {
		ofCode[b.alerts[i].Code]++
	}
	b.alerts = slices.DeleteFunc(b.alerts, func(alert booked) bool {
		gone := alert.Seq < first || now.Sub(alert.stored) > sideRetention ||
			ofCode[alert.Code] > Kept
		if gone {
			ofCode[alert.Code]--
			delete(b.acks, alert.Seq)
		}
		return gone
	})
}

// storedOf returns the alert in a message; nil if it is nothing that a server wrote.
func storedOf(msg *jetstream.RawStreamMsg, world string) *Stored {
	stored := &Stored{Seq: msg.Sequence, ID: msg.Header.Get(jetstream.MsgIDHeader)}
	if json.Unmarshal(msg.Data, &stored.Alert) != nil ||
		msg.Subject != wire.AlertSubject(world, string(stored.Code)) {
		return nil
	}
	return stored
}

// acknowledgementOf returns the acknowledgement in a message. One that another writer put there
// does not say who.
func acknowledgementOf(msg *jetstream.RawStreamMsg) *Acknowledgement {
	found := new(Acknowledgement)
	_ = json.Unmarshal(msg.Data, found)
	return found
}

package alerts

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
)

// Stored is an alert of the stream.
type Stored struct {
	// ID is Nats-Msg-Id: what two messages about the same alert share.
	ID string `json:"id"`
	runevents.Alert
}

// Page is a page of the alerts, the newest first.
type Page struct {
	Alerts []Stored
	Next   uint64 // after which an older page goes on; 0 where there is none
}

// maxScan bounds how many messages one page looks at, so that one with many deleted ones may be
// short of its limit and still have a next one.
const maxScan = 2_000

// List returns up to limit alerts older than the place after, the Next of the page before; 0 for
// the newest. A stream that is gone, because no alert was raised since, has none.
func (a *Alerts) List(ctx context.Context, after uint64, limit int) (Page, error) {
	page := Page{Alerts: []Stored{}}
	stream, err := a.stream.JetStream.Stream(ctx, a.stream.Config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return page, nil
	}
	if err != nil {
		return page, fmt.Errorf("alerts: %w", err)
	}
	state := stream.CachedInfo().State
	seq := state.LastSeq
	if after > 0 {
		seq = min(seq, after-1)
	}
	for scanned := 0; seq >= max(state.FirstSeq, 1); seq-- {
		if len(page.Alerts) == limit || scanned == maxScan {
			page.Next = seq + 1
			break
		}
		scanned++
		msg, err := stream.GetMsg(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return page, fmt.Errorf("alerts: message %d: %w", seq, err)
		}
		stored := Stored{ID: msg.Header.Get(jetstream.MsgIDHeader)}
		if json.Unmarshal(msg.Data, &stored.Alert) == nil { // what others wrote there is no alert
			page.Alerts = append(page.Alerts, stored)
		}
	}
	return page, nil
}

// Recall makes RaiseOnce know the newest alerts of the stream, up to limit, so that they are not
// raised again. It tries until it has read them; the error is that of ctx.
func (a *Alerts) Recall(ctx context.Context, limit int) error {
	pauses := backoff.Backoff{Min: minAlertPause, Max: maxAlertPause}
	for {
		page, err := a.List(ctx, 0, limit)
		if err == nil {
			for i := range page.Alerts {
				a.raised.First(&page.Alerts[i].Alert)
			}
			return nil
		}
		a.logger.Warn("the alerts cannot be read, and projections wait for them; will try again", "error", err)
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}

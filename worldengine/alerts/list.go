package alerts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/messages"
)

// Stored is an alert of the stream; Seq is its sequence there.
type Stored = messages.Alert

// Page is a page of the alerts, the newest first.
type Page struct {
	Alerts []Stored
	Next   uint64 // after which an older page goes on; 0 where there is none
}

// Filter says which alerts a page has. Its zero value means all, from the newest on.
type Filter struct {
	// After is the Next of the page before: the page has older ones.
	After uint64
	// Open leaves out what was acknowledged.
	Open bool
}

// maxScan bounds how many messages one page looks at, so that one with many deleted ones may be
// short of its limit and still have a next one.
const maxScan = 2_000

// List returns up to limit alerts. A stream that is gone, because no alert was raised since, has
// none.
func (a *Alerts) List(ctx context.Context, filter Filter, limit int) (Page, error) {
	page := Page{Alerts: []Stored{}}
	stream, err := a.stream.JetStream.Stream(ctx, a.stream.Config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return page, nil
	}
	if err != nil {
		return page, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	acknowledged, err := a.acknowledged(ctx, stream)
	if err != nil {
		return page, err
	}
	state := stream.CachedInfo().State
	seq := state.LastSeq
	if filter.After > 0 {
		seq = min(seq, filter.After-1)
	}
	for scanned := 0; seq >= max(state.FirstSeq, 1); seq-- {
		if filter.Open && acknowledged[seq] {
			continue
		}
		if len(page.Alerts) == limit || scanned == maxScan {
			page.Next = seq + 1
			break
		}
		scanned++
		alert, err := a.stored(ctx, stream, seq)
		if err != nil {
			return page, err
		}
		if alert == nil {
			continue
		}
		if acknowledged[seq] {
			if alert.Acknowledged, err = a.acknowledgement(ctx, stream, seq); err != nil {
				return page, err
			}
		}
		page.Alerts = append(page.Alerts, *alert)
	}
	return page, nil
}

// recentAlerts is how many of the newest alerts StorageFailedSince looks through.
const recentAlerts = 1000

// StorageFailedSince returns when the newest STORAGE_FAILED was raised, where no STORAGE_RECOVERED
// came after it; else, or where the alerts cannot be read, zero.
func (a *Alerts) StorageFailedSince(ctx context.Context) time.Time {
	page, err := a.List(ctx, Filter{}, recentAlerts)
	if err != nil {
		return time.Time{}
	}
	for i := range page.Alerts { // the newest first
		switch page.Alerts[i].Code {
		case runevents.StorageRecovered:
			return time.Time{}
		case runevents.StorageFailed:
			at, _ := time.Parse(time.RFC3339Nano, page.Alerts[i].At)
			return at
		}
	}
	return time.Time{}
}

// Recall makes RaiseOnce know the newest alerts of the stream, up to limit, so that they are not
// raised again. It tries until it has read them; the error is that of ctx.
func (a *Alerts) Recall(ctx context.Context, limit int) error {
	pauses := backoff.Backoff{Min: minAlertPause, Max: maxAlertPause}
	for {
		page, err := a.List(ctx, Filter{}, limit)
		if err == nil {
			for i := range page.Alerts {
				a.raised.First(&page.Alerts[i].Alert)
			}
			return nil
		}
		a.logger.Warn("the alerts cannot be read, and projections wait for them; will try again",
			"error", err)
		if err := pauses.Wait(ctx); err != nil {
			return err
		}
	}
}

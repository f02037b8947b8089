package alerts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	// Codes are the codes that the page is of; none for every code.
	Codes []runevents.AlertCode
}

func (f *Filter) takes(alert *Stored) bool {
	return (f.After == 0 || alert.Seq < f.After) && !(f.Open && alert.Acknowledged != nil) &&
		(len(f.Codes) == 0 || slices.Contains(f.Codes, alert.Code))
}

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
	a.book.mu.Lock()
	defer a.book.mu.Unlock()
	if err := a.book.read(ctx, stream, a.world, a.now()); err != nil {
		return page, err
	}
	for i := len(a.book.alerts) - 1; i >= 0; i-- {
		alert := a.book.alerts[i].Stored
		alert.Acknowledged = a.book.acks[alert.Seq]
		if !filter.takes(&alert) {
			continue
		}
		if len(page.Alerts) == limit {
			page.Next = page.Alerts[limit-1].Seq
			break
		}
		alert.More = a.found.moreOf(&alert.Alert)
		page.Alerts = append(page.Alerts, alert)
	}
	return page, nil
}

// Newest is how many alerts Summary returns of each kind.
const Newest = 5

// Summary is what the alerts of a world come to.
type Summary struct {
	messages.OpenAlerts
	// Urgent are the newest open alerts P1 of the last hour, and MoreUrgent how many others there
	// are. A STORAGE_FAILED is none behind which a STORAGE_RECOVERED came.
	Urgent     []Stored
	MoreUrgent int
}

// Summary counts all alerts.
func (a *Alerts) Summary(ctx context.Context) (Summary, error) {
	s := Summary{OpenAlerts: messages.OpenAlerts{
		Count: map[runevents.Severity]int{}, Newest: []Stored{}, Lost: a.Stats().AlertsLost,
	}}
	page, err := a.List(ctx, Filter{}, math.MaxInt)
	recovered := false
	for i := range page.Alerts { // the newest first
		alert := &page.Alerts[i]
		recovered = recovered || alert.Code == runevents.StorageRecovered
		if alert.Acknowledged != nil {
			s.Acknowledged++
			continue
		}
		s.Count[alert.Severity]++
		if len(s.Newest) < Newest {
			s.Newest = append(s.Newest, *alert)
		}
		at, err := time.Parse(time.RFC3339, alert.At)
		switch {
		case alert.Severity != runevents.P1 || err != nil || a.now().Sub(at) >= time.Hour ||
			alert.Code == runevents.StorageFailed && recovered:
		case len(s.Urgent) < Newest:
			s.Urgent = append(s.Urgent, *alert)
		default:
			s.MoreUrgent++
		}
	}
	return s, err
}

// StorageFailedSince returns when the newest STORAGE_FAILED was raised, if no STORAGE_RECOVERED
// came after it. Otherwise, or if the alerts cannot be read, it returns zero.
func (a *Alerts) StorageFailedSince(ctx context.Context) time.Time {
	page, err := a.List(ctx, Filter{
		Codes: []runevents.AlertCode{runevents.StorageFailed, runevents.StorageRecovered},
	}, 1)
	if err != nil || len(page.Alerts) == 0 || page.Alerts[0].Code == runevents.StorageRecovered {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339Nano, page.Alerts[0].At)
	return at
}

// Recall makes RaiseOnce and RaiseFound know the alerts of the stream, so that they are not raised
// again. It tries until it has read them; the error is that of ctx.
func (a *Alerts) Recall(ctx context.Context) error {
	pauses := backoff.Backoff{Min: minAlertPause, Max: maxAlertPause}
	for {
		page, err := a.List(ctx, Filter{}, math.MaxInt)
		if err == nil {
			for i := range page.Alerts {
				a.raised.First(&page.Alerts[i].Alert)
				a.found.recall(&page.Alerts[i].Alert)
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

package alerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// ErrUnknownAlert: the stream of alerts has no alert with this sequence, or has removed it.
var ErrUnknownAlert = errors.New("alerts: no such alert is kept")

// kept is a copy of the stream of alerts, with the stream's state at that time.
type kept struct {
	mu             sync.Mutex
	created        time.Time // of the stream: if it is created again, sequences begin anew
	last, messages uint64
	alerts         []messages.Alert // the oldest first; immutable
}

// read returns the alerts that the stream keeps, the oldest first; none if the stream is missing.
func (a *Alerts) read(ctx context.Context) ([]messages.Alert, error) {
	stream, err := a.js.Stream(ctx, a.stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	k := &a.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	info := stream.CachedInfo()
	if last := info.State.LastSeq; !k.created.Equal(info.Created) || k.last != last ||
		k.messages != info.State.Msgs {
		var all []messages.Alert
		if err := commitlog.EachWhole(ctx, stream, a.js.Conn().MaxPayload(),
			func(msg *jetstream.RawStreamMsg) error {
				all = a.add(all, msg)
				return nil
			}); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		k.created, k.last, k.messages, k.alerts = info.Created, last, info.State.Msgs, all
	}
	return k.alerts, nil
}

// add adds a message of the stream: an alert, or the acknowledgement of an earlier alert. It ignores
// other messages.
func (a *Alerts) add(all []messages.Alert, msg *jetstream.RawStreamMsg) []messages.Alert {
	acknowledged := wire.AcknowledgedSubject(a.config.World, "")
	if text, ok := strings.CutPrefix(msg.Subject, acknowledged); ok {
		seq, _ := strconv.ParseUint(text, 10, 64)
		if i, found := find(all, seq); found {
			all[i].Acknowledged = new(messages.Acknowledgement)
			_ = json.Unmarshal(msg.Data, all[i].Acknowledged) // if unreadable, it names nobody
		}
		return all
	}
	alert := messages.Alert{Seq: msg.Sequence, ID: msg.Header.Get(jetstream.MsgIDHeader)}
	if json.Unmarshal(msg.Data, &alert.Alert) == nil &&
		msg.Subject == wire.AlertSubject(a.config.World, string(alert.Code)) {
		all = append(all, alert)
	}
	return all
}

// find returns the index of the alert with a sequence.
func find(alerts []messages.Alert, seq uint64) (int, bool) {
	return slices.BinarySearchFunc(alerts, seq, func(alert messages.Alert, seq uint64) int {
		return cmp.Compare(alert.Seq, seq)
	})
}

// Filter selects alerts. Its zero value selects all.
type Filter struct {
	// After is the Next of the page before; 0 for the first page.
	After uint64
	// Open leaves out acknowledged alerts.
	Open bool
	// Codes are the wanted codes; all if it is empty.
	Codes []runevents.AlertCode
}

// List returns a page of up to limit alerts, the newest first.
func (a *Alerts) List(ctx context.Context, filter Filter, limit int) (messages.Alerts, error) {
	page := messages.Alerts{Alerts: []messages.Alert{}}
	all, err := a.read(ctx)
	for _, alert := range slices.Backward(all) {
		if filter.After > 0 && alert.Seq >= filter.After ||
			filter.Open && alert.Acknowledged != nil ||
			len(filter.Codes) > 0 && !slices.Contains(filter.Codes, alert.Code) {
			continue
		}
		if len(page.Alerts) == limit {
			page.Next = page.Alerts[limit-1].Seq
			break
		}
		alert.More = a.moreOf(&alert.Alert)
		page.Alerts = append(page.Alerts, alert)
	}
	return page, err
}

// Newest bounds each list of alerts in a Summary.
const Newest = 5

// Summary counts the alerts of a world.
type Summary struct {
	messages.OpenAlerts
	// Urgent are the newest open P1 alerts of the last hour, and MoreUrgent counts the others. A
	// STORAGE_FAILED is not urgent after a later STORAGE_RECOVERED.
	Urgent     []messages.Alert
	MoreUrgent int
}

// Summary counts all alerts.
func (a *Alerts) Summary(ctx context.Context) (Summary, error) {
	s := Summary{OpenAlerts: messages.OpenAlerts{
		Count: map[runevents.Severity]int{}, Newest: []messages.Alert{}, Lost: a.Stats().AlertsLost,
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
		case alert.Severity != runevents.P1 || err != nil || a.config.Now().Sub(at) >= time.Hour ||
			alert.Code == runevents.StorageFailed && recovered:
		case len(s.Urgent) < Newest:
			s.Urgent = append(s.Urgent, *alert)
		default:
			s.MoreUrgent++
		}
	}
	return s, err
}

// StorageFailedSince returns the time of the newest STORAGE_FAILED; zero if a STORAGE_RECOVERED
// followed, or if the alerts cannot be read.
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

// Recall reads the alerts of the stream, so that RaiseOnce and RaiseFound do not raise them again. It
// retries until ctx is done.
func (a *Alerts) Recall(ctx context.Context) error {
	var all []messages.Alert
	err := a.retry(ctx, "the alerts cannot be read, and projections wait for that; will try again",
		func() (err error) {
			all, err = a.read(ctx)
			return err
		})
	for i := range all {
		a.remember(&all[i].Alert)
	}
	return err
}

// Acknowledge stores who has dealt with the alert with a sequence, when and why. It returns the
// alert with its first acknowledgement: later ones change nothing. The stream never drops an
// acknowledgement before its alert, which is older. The errors are ErrUnknownAlert and
// ErrUnavailable.
func (a *Alerts) Acknowledge(ctx context.Context, seq uint64, by, reason string) (messages.Alert, error) {
	alert, err := a.alertAt(ctx, seq)
	if err != nil || alert.Acknowledged != nil {
		return alert, err
	}
	alert.Acknowledged = &messages.Acknowledgement{
		By: by, At: runevents.Timestamp(a.config.Now()), Reason: reason,
	}
	body, err := json.Marshal(alert.Acknowledged)
	if err != nil {
		return messages.Alert{}, fmt.Errorf("alerts: an acknowledgement cannot be written: %w", err)
	}
	err = Store(ctx, a.js, a.stream, &nats.Msg{
		Subject: wire.AcknowledgedSubject(a.config.World, strconv.FormatUint(seq, 10)), Data: body,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {"0"}},
	})
	switch {
	case commitlog.IsWrongLastSequence(err): // somebody else was faster
		alert, err = a.alertAt(ctx, seq)
		if err == nil && alert.Acknowledged == nil { // a replica does not have it yet
			err = ErrUnavailable
		}
	case err != nil:
		return messages.Alert{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return alert, err
}

// alertAt returns the alert with a sequence, or ErrUnknownAlert.
func (a *Alerts) alertAt(ctx context.Context, seq uint64) (messages.Alert, error) {
	all, err := a.read(ctx)
	if err != nil {
		return messages.Alert{}, err
	}
	i, found := find(all, seq)
	if !found {
		return messages.Alert{}, ErrUnknownAlert
	}
	return all[i], nil
}

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
	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/commitlog"
	"worldengine/worldengine/internal/store/sidestream"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// ErrUnknownAlert means that the stream of alerts has no alert with this sequence, or has removed it.
var ErrUnknownAlert = errors.New("alerts: no such alert is kept")

// alertCache is a copy of the stream of alerts, with the stream's state at that time.
type alertCache struct {
	mu             sync.Mutex
	created        time.Time // of the stream: if it is created again, sequences begin anew
	last, messages uint64
	alerts         []messages.Alert // the oldest first; immutable
}

// All returns the alerts that the stream keeps, the oldest first; none if the stream is missing. The
// caller must not change them.
func (a *Alerts) All(ctx context.Context) ([]messages.Alert, error) {
	stream, err := a.js.Stream(ctx, a.stream.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	k := &a.cache
	k.mu.Lock()
	defer k.mu.Unlock()
	info := stream.CachedInfo()
	if last := info.State.LastSeq; !k.created.Equal(info.Created) || k.last != last ||
		k.messages != info.State.Msgs {
		var all []messages.Alert
		if err := commitlog.ScanMessages(ctx, stream, a.js.Conn().MaxPayload(),
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
	acknowledged := layout.AcknowledgedSubject(a.config.World, "")
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
		acknowledgeResolved(all, &alert)
		all = append(all, alert)
	}
	return all
}

// byServer is who acknowledges the alerts that another one ends, and that one.
const byServer = "handoffd"

// resolves has the code of the alerts that an alert with a code ends, in its town if it has one. Nobody needs to act on an
// alert that ends others.
var resolves = map[runevents.AlertCode]runevents.AlertCode{
	runevents.PluginReturned:   runevents.PluginAbsent,
	runevents.StorageRecovered: runevents.StorageFailed,
	runevents.HistoryRecovered: runevents.HistoryFull,
}

// acknowledgeResolved acknowledges an alert that ends others, and the alerts before it that it ends.
func acknowledgeResolved(before []messages.Alert, alert *messages.Alert) {
	ends := resolves[alert.Code]
	if ends == "" {
		return
	}
	alert.Acknowledged = &messages.Acknowledgement{
		By: byServer, At: alert.At, Reason: "ended by " + string(alert.Code),
	}
	for i := range slices.Backward(before) {
		switch of := &before[i]; {
		case of.TownID != alert.TownID:
		case of.Code == alert.Code: // it has ended the ones before
			return
		case of.Code == ends && of.Acknowledged == nil:
			of.Acknowledged = alert.Acknowledged
		}
	}
}

func find(alerts []messages.Alert, seq uint64) (int, bool) {
	return slices.BinarySearchFunc(alerts, seq, func(alert messages.Alert, seq uint64) int {
		return cmp.Compare(alert.Seq, seq)
	})
}

// List returns a page of the alerts, the newest first. Its Limit must be set.
func (a *Alerts) List(ctx context.Context, r messages.AlertList) (messages.Alerts, error) {
	page := messages.Alerts{Alerts: []messages.Alert{}}
	all, err := a.All(ctx)
	for _, alert := range slices.Backward(all) {
		if r.After > 0 && alert.Seq >= r.After || r.Open && alert.Acknowledged != nil {
			continue
		}
		if len(page.Alerts) == r.Limit {
			page.Next = page.Alerts[r.Limit-1].Seq
			break
		}
		alert.More = a.furtherEvents(&alert.Alert)
		page.Alerts = append(page.Alerts, alert)
	}
	return page, err
}

// maxSummaryCodes is how many codes of alerts a report of the world names.
const maxSummaryCodes = 5

// Summary counts the open alerts, and returns the newest of each code with the towns of the others. It
// also returns those that are urgent, the newest first: the P1 alerts of the last hour.
func (a *Alerts) Summary(
	ctx context.Context,
) (open messages.OpenAlerts, urgent []messages.OpenAlert, err error) {
	open = messages.OpenAlerts{
		Count: map[runevents.Severity]int{}, Newest: []messages.OpenAlert{}, Lost: a.Stats().AlertsLost,
	}
	page, err := a.List(ctx, messages.AlertList{Limit: math.MaxInt})
	for _, alert := range page.Alerts {
		if alert.Acknowledged != nil {
			open.Acknowledged++
			continue
		}
		open.Count[alert.Severity]++
		open.Newest = group(open.Newest, alert, maxSummaryCodes)
		at, err := time.Parse(time.RFC3339, alert.At)
		if alert.Severity == runevents.P1 && err == nil && a.config.Now().Sub(at) < time.Hour {
			urgent = group(urgent, alert, math.MaxInt)
		}
	}
	return open, urgent, err
}

// maxTownsNamed is how many towns of a group of alerts are named.
const maxTownsNamed = 100

// group adds an open alert to at most so many groups of one code each: one cause is said once, with
// its towns. The first alert of a group stands for it.
func group(groups []messages.OpenAlert, alert messages.Alert, limit int) []messages.OpenAlert {
	i := slices.IndexFunc(groups, func(of messages.OpenAlert) bool { return of.Code == alert.Code })
	if i < 0 && len(groups) >= limit {
		return groups
	}
	if i < 0 {
		i, groups = len(groups), append(groups, messages.OpenAlert{Alert: alert})
	}
	of := &groups[i]
	of.Open++
	if alert.TownID != "" && len(of.Towns) < maxTownsNamed && !slices.Contains(of.Towns, alert.TownID) {
		of.Towns = append(of.Towns, alert.TownID)
	}
	return groups
}

// StorageFailedSince returns the time of the newest STORAGE_FAILED of earlier Alerts; zero if a
// STORAGE_RECOVERED followed, or if the alerts cannot be read.
func (a *Alerts) StorageFailedSince(ctx context.Context) (since time.Time) {
	all, _ := a.All(ctx)
	note := func(alert *runevents.Alert) {
		switch alert.Code {
		case runevents.StorageFailed:
			since, _ = time.Parse(time.RFC3339Nano, alert.At)
		case runevents.StorageRecovered:
			since = time.Time{}
		}
	}
	for i := range all {
		note(&all[i].Alert)
	}
	for i := range a.backlog {
		note(&a.backlog[i])
	}
	return since
}

// LoadRaised reads the alerts of the stream: RaiseOnce and RaiseProjected raise none of them from then on. It retries
// until ctx is done.
func (a *Alerts) LoadRaised(ctx context.Context) error {
	var all []messages.Alert
	err := a.retry(ctx, "the alerts cannot be read, and projections wait for that; will try again",
		func() (err error) {
			all, err = a.All(ctx)
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
	err = sidestream.Store(ctx, a.js, a.config.Log, a.stream, &nats.Msg{
		Subject: layout.AcknowledgedSubject(a.config.World, strconv.FormatUint(seq, 10)), Data: body,
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
	all, err := a.All(ctx)
	if err != nil {
		return messages.Alert{}, err
	}
	i, found := find(all, seq)
	if !found {
		return messages.Alert{}, ErrUnknownAlert
	}
	return all[i], nil
}

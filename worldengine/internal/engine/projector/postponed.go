package projector

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/store/runs"
)

// maxRecalled is how many of the newest INCONSISTENT runs may get an alert that an earlier server
// postponed. The stream of alerts keeps no more of a code.
const maxRecalled = 1_000

// postponedAlert is the row that made a run INCONSISTENT, while the run may lack its alert.
type postponedAlert struct {
	seq    uint64
	source string // the town token and the producer, which have a rate of their own; "" if unknown
}

// postponedAlerts are the alerts about INCONSISTENT runs that the rate of alerts has postponed. The index
// has the runs of an earlier server.
type postponedAlerts struct {
	mu  sync.Mutex
	all []postponedAlert
}

func (l *postponedAlerts) add(all ...postponedAlert) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, all...)
}

func (l *postponedAlerts) isEmpty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) == 0
}

// drain returns all rows, the oldest first, and forgets them.
func (l *postponedAlerts) drain() []postponedAlert {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	slices.SortFunc(all, func(a, b postponedAlert) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// recall adds the INCONSISTENT runs that are older than the rows that Run looks at, once the index has them
// all.
func (p *Projector) recall() {
	if p.recalled || p.config.Index.Position() < p.startSeq {
		return
	}
	p.recalled = true
	for _, row := range p.config.Index.Inconsistent(0, maxRecalled) {
		if row.Seq <= p.startSeq {
			p.postponed.add(postponedAlert{seq: row.Seq})
		}
	}
}

// raisePostponed raises the postponed alerts that the rate allows by now. It reads at most batchSize runs, and
// none of a source whose rate is spent.
func (p *Projector) raisePostponed(ctx context.Context) (err error) {
	p.recall()
	spent, read := map[string]bool{}, 0
	for _, alert := range p.postponed.drain() {
		if err != nil || read == batchSize || spent[alert.source] {
			p.postponed.add(alert)
			continue
		}
		read++
		var source string
		if source, err = p.raiseAgain(ctx, alert); err != nil {
			p.postponed.add(alert)
		} else if source != "" {
			spent[source] = true
		}
	}
	return err
}

// raiseAgain projects a run from its beginning, which raises its alerts. If the rate postpones them again,
// they are added again, and raiseAgain returns their source. An expired or damaged run gets none.
func (p *Projector) raiseAgain(ctx context.Context, alert postponedAlert) (source string, err error) {
	msg, err := p.config.Log.Store.At(ctx, alert.seq)
	if err != nil || msg == nil {
		return "", err
	}
	run := p.NewProjection(layout.RunIDOf(msg.Header))
	if err := p.Follow(ctx, run); err != nil && !errors.Is(err, runs.ErrRunDamaged) {
		return "", err
	}
	return run.source, nil
}

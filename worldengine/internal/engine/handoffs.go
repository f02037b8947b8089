package engine

import (
	"iter"
	"log/slog"
	"time"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/trace"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/engine/game"
	"worldengine/worldengine/internal/engine/queue"
	"worldengine/worldengine/internal/engine/stepper"
	"worldengine/worldengine/internal/engine/waiting"
	"worldengine/worldengine/internal/store/records"
)

// Answer is the answer to a handoff.
type Answer = machine.Answer

// Answerer gets, once, the answer to a handoff or the error that kept the handoff from being judged.
type Answerer = game.Answerer

// Handoffs judges handoffs in the turns of their towns, and answers their clients. It has the deliveries that wait in
// the queue. The stepper decides and commits; the dispatcher gets the commands that games apply. Handoffs is safe for
// concurrent use.
type Handoffs struct {
	log            *records.Log
	townCache      *records.TownCache
	receipts       *Receipts
	queue          *queue.Queue
	stepper        *stepper.Stepper
	dispatcher     *game.Dispatcher
	worldPause     *waiting.WorldPause
	signalRecorder *signalRecorder // for refused retries
	limits         waiting.Limits
	newRun         func(planID, planVersion string) (runevents.Identity, error)
	notifier       Notifier // nil for none
	logger         *slog.Logger
}

// Submit queues a handoff for its town. sent are the bytes from which it was parsed, or nil, and
// traced is the trace context that came with it. answerer gets the answer once it is committed, or
// the error that prevented the commit. Handoffs of one town are judged in their submission's order.
// If Submit itself returns an error (ErrOverloaded, ErrStopping, ErrInProgress), answerer gets
// nothing.
func (hs *Handoffs) Submit(
	h *handoff.Handoff, sent []byte, traced trace.Context, answerer Answerer,
) error {
	d, err := hs.newDelivery(h, traced)
	if err != nil {
		return err
	}
	d.sent = sent
	return hs.submit(d, answerer)
}

// submit queues a delivery. If the command of its handoff is being applied, submit returns
// ErrInProgress. It queues a retry even then, so that the refusal is recorded.
func (hs *Handoffs) submit(d *delivery, answerer Answerer) error {
	d.answerer = answerer
	if d.failedRun == nil {
		if err := d.checkKey(); err != nil {
			return err
		}
	}
	return hs.queue.SubmitTask(d.townID(), d)
}

func (hs *Handoffs) newDelivery(h *handoff.Handoff, traced trace.Context) (*delivery, error) {
	run, err := hs.newRun(h.ProposalID, h.Proposal.SchemaVersion)
	run.Trace = traced
	return &delivery{handoffs: hs, handoff: h, run: run, submittedAt: time.Now()}, err
}

// deliveries returns the unfinished deliveries of a town, in the order of their arrival after the one
// that has its turn. The queue is locked meanwhile.
func (hs *Handoffs) deliveries(townID string) iter.Seq[*delivery] {
	return func(yield func(*delivery) bool) {
		for task := range hs.queue.Tasks(townID) {
			if d, ok := task.(*delivery); ok && !yield(d) {
				return
			}
		}
	}
}

// markCancelled marks each delivery that waits in a run that was cancelled. Handoffs sent later are new
// deliveries. It runs in the town's turn.
func (hs *Handoffs) markCancelled(townID, runID string) {
	var first *delivery
	for d := range hs.deliveries(townID) {
		if d.run.RunID == runID {
			first = d
		}
	}
	for d := range hs.deliveries(townID) {
		if first != nil && (d == first || d.mayJoin(first)) {
			d.cancelledRun = runID
		}
	}
}

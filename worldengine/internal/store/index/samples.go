package index

import (
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/messages"
)

// keptAnswers is the number of runs whose answer times are kept, in some 4 MB.
const keptAnswers = 50_000

// cancelled is the outcome of a handoff whose run was cancelled. Other outcomes are statuses of
// results.
const cancelled = "cancelled"

// samples count the handoffs whose end is in the log up to Position. They outlast the rows, which are
// dropped when the log has forgotten their messages.
type samples struct {
	Position uint64  `json:"position"`
	Minutes  minutes `json:"minutes"`
	changed  bool    // since they were written
}

// countEnd counts a row if it ends the run of a handoff. arrived is when the handoff arrived.
func (s *state) countEnd(counts *minutes, r *row) (arrived int64, ends bool) {
	outcome := s.outcome(r)
	if outcome == "" {
		return 0, false
	}
	counts.addOutcome(r.At, outcome)
	arrived = s.arrived(r.run)
	if r.prevRun != 0 { // the handoff has waited, or a game has applied it
		counts.addWait(arrived, r.At)
	}
	return arrived, true
}

// Answered counts the time from the arrival of a handoff to its answer. No row has that time, since
// a row's At precedes its commit. countEnd counts the wait of a run with several rows.
func (ix *Index) Answered(runID string, at time.Time, took time.Duration) {
	hash := fingerprint(runID)
	ix.answers.Add(hash, took)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	run := ix.state.runs[ix.state.run(hash)]
	ix.samples.Minutes.addAnswer(at.UnixMilli(), took.Milliseconds(), run.first == run.last)
	ix.samples.changed = true
}

// AnswerTime returns the time from the arrival of a run's handoff to its answer, if this process has answered
// it lately.
func (ix *Index) AnswerTime(runID string) (took time.Duration, known bool) {
	return ix.answers.Get(fingerprint(runID))
}

// outcome returns the outcome of the handoff whose run a row ends, "" if it ends none.
func (s *state) outcome(r *row) string {
	w := s.labelsOf(r)
	if !r.has(Ended) || r.prevRun != 0 && s.row(r.prevRun).has(Ended) ||
		machine.Kind(w.kind) == machine.KindEvents {
		return ""
	}
	if w.result == "" && runevents.RunStatus(w.status) == runevents.RunStatusCancelled {
		return cancelled
	}
	return w.result
}

func (s *state) arrived(run uint32) int64 { return s.first(run).At - int64(s.first(run).Waited) }

// sample counts the rows that the samples lack.
func (ix *Index) sample() {
	if ix.samples.Position >= ix.state.position {
		return
	}
	for n := ix.state.firstAfter(ix.samples.Position); n <= ix.state.count; n++ {
		ix.state.countEnd(&ix.samples.Minutes, ix.state.row(n))
	}
	ix.samples.Position, ix.samples.changed = ix.state.position, true
}

// Samples returns a sample for each step between from and to, and the percentiles of all their times
// together. If towns is nil, it counts all handoffs. Else it counts those handoffs of the towns whose
// commits the log still keeps, and answer times end at persistedAt, not when the answer is sent.
func (ix *Index) Samples(
	towns []string, from, to time.Time, step time.Duration, now time.Time,
) messages.Samples {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s, chosen := ix.state, map[uint32]bool{}
	var counted minutes
	if towns == nil {
		counted = ix.samples.Minutes // the copy shares the maps, and only waits are added to it
	}
	for _, token := range towns {
		chosen[s.town(token)] = true
		s.countTown(&counted, s.town(token))
	}
	for run := range s.open { // handoffs that wait until now
		if town := s.first(run).town; towns == nil || town != 0 && chosen[town] {
			counted.addWait(s.arrived(run), now.UnixMilli())
		}
	}
	return counted.samples(from, to, step, now)
}

// countTown counts the rows of a town.
func (s *state) countTown(counts *minutes, town uint32) {
	for n := s.towns[town].last; n != 0; n = s.row(n).prevTown {
		r := s.row(n)
		if arrived, ends := s.countEnd(counts, r); ends {
			counts.addAnswer(r.At, r.At-arrived, r.prevRun == 0)
		}
	}
}

func (ix *Index) samplesFile() string { return filepath.Join(ix.config.Dir, "samples") }

// loadSamples reads the samples of the file. Without the file, the rows are counted, and answer
// times are lost.
func (ix *Index) loadSamples(end uint64) {
	data, err := os.ReadFile(ix.samplesFile())
	kept := samples{}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil || kept.Position > end {
		ix.config.Logger.Info("the samples are counted anew: their file does not count", "file",
			ix.samplesFile(), "err", err)
		return
	}
	ix.samples = kept
}

// keepSamples writes the samples to the file, if there is one and they have changed.
func (ix *Index) keepSamples() error {
	if ix.file == nil {
		return nil
	}
	ix.mu.Lock()
	changed := ix.samples.changed
	ix.samples.changed = false
	var data []byte
	var err error
	if changed {
		data, err = json.Marshal(&ix.samples)
	}
	ix.mu.Unlock()
	if !changed {
		return nil
	}
	if err == nil {
		err = platform.ReplaceFile(ix.samplesFile(), data)
	}
	if err != nil {
		ix.mu.Lock()
		ix.samples.changed = true
		ix.mu.Unlock()
	}
	return err
}

package index

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/messages"
)

const (
	// KeptMinutes is how many minutes are kept: a day, and the longest step.
	KeptMinutes = 25 * 60
	perMinute   = int64(time.Minute / time.Millisecond)
	// keptAnswers is of how many runs Took knows the time, in some 4 MB.
	keptAnswers = 50_000
)

// cancelled is the outcome of a handoff whose run was cancelled. Other outcomes are statuses of
// results.
const cancelled = "cancelled"

// samples count, for each minute, the handoffs whose end is in the log up to Position. Samples
// outlast the rows, which are dropped when the log has forgotten their messages.
type samples struct {
	Position uint64              `json:"position"`
	Minutes  [KeptMinutes]minute `json:"minutes"` // a minute replaces the one of KeptMinutes before
}

type minute struct {
	At       int64            `json:"at,omitzero"` // Unix time in minutes
	Outcomes map[string]int64 `json:"outcomes,omitzero"`
	// Took counts the times from the arrival of a handoff to its answer, by bucket.
	Took map[int]int64 `json:"took,omitzero"`
	// Waited is the sum of the times, in ms, that handoffs waited or were being applied.
	Waited int64 `json:"waited,omitzero"`
}

func newMinute(at int64) minute {
	return minute{At: at, Outcomes: map[string]int64{}, Took: map[int]int64{}}
}

// minute returns the counts of a minute; nil if the minute is too old.
func (p *samples) minute(at int64) *minute {
	m := &p.Minutes[uint64(at)%KeptMinutes]
	if m.At < at || m.Outcomes == nil || m.Took == nil { // nil: unused, or damaged in the file
		*m = newMinute(at)
	}
	if m.At > at {
		return nil
	}
	return m
}

// count counts a row if it ends the run of a handoff. arrived is when the handoff arrived.
func (p *samples) count(s *state, r *row) (arrived int64, ends bool) {
	outcome := s.outcome(r)
	if outcome == "" {
		return 0, false
	}
	if m := p.minute(r.At / perMinute); m != nil {
		m.Outcomes[outcome]++
	}
	arrived = s.arrived(r.run)
	if r.prevRun != 0 { // the handoff has waited, or a game has applied it
		p.wait(arrived, r.At)
	}
	return arrived, true
}

// answer counts the time that an answer took. If waited is set, it also counts as a wait.
func (p *samples) answer(at, took int64, waited bool) {
	m := p.minute(at / perMinute)
	if m == nil {
		return
	}
	m.Took[bucket(took)]++
	if waited {
		p.wait(at-took, at)
	}
}

// Answered counts the time from the arrival of a handoff to its answer. No row has that time, since
// a row's At precedes its commit. take counts the wait of a run with several rows.
func (ix *Index) Answered(runID string, at time.Time, took time.Duration) {
	hash := fingerprint(runID)
	ix.answers.Add(hash, took)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	run := ix.s.runs[ix.s.run(hash)]
	ix.samples.answer(at.UnixMilli(), took.Milliseconds(), run.first == run.last)
	ix.sampled = true
}

// AnswerTime returns the time from the arrival of a run's handoff to its answer, if this process has answered
// it lately.
func (ix *Index) AnswerTime(runID string) (took time.Duration, known bool) {
	return ix.answers.Get(fingerprint(runID))
}

// wait counts a handoff that waited from one time to another.
func (p *samples) wait(from, to int64) {
	for at := max(from/perMinute, to/perMinute-KeptMinutes+1); at <= to/perMinute; at++ {
		if m := p.minute(at); m != nil {
			m.Waited += min(to, (at+1)*perMinute) - max(from, at*perMinute)
		}
	}
}

// outcome returns the outcome of the handoff whose run a row ends, "" if it ends none.
func (s *state) outcome(r *row) string {
	w := s.wordsOf(r)
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

// bucket returns the bucket of a time; a time twice as long is eight buckets higher.
func bucket(ms int64) int { return int(8 * math.Log2(float64(max(ms, 0)+1))) }

// least returns the shortest time of a bucket.
func least(bucket int) int64 { return int64(math.Ceil(math.Exp2(float64(bucket)/8))) - 1 }

// sample counts the rows that the samples lack.
func (ix *Index) sample() {
	if ix.samples.Position >= ix.s.position {
		return
	}
	for n := ix.s.firstAfter(ix.samples.Position); n <= ix.s.count; n++ {
		ix.samples.count(ix.s, ix.s.row(n))
	}
	ix.samples.Position, ix.sampled = ix.s.position, true
}

// Samples returns a sample for each step between from and to, and the percentiles of all their times
// together. If towns is nil, it counts all handoffs. Else it counts those handoffs of the towns whose commits the log still keeps, and
// answer times end at persistedAt, not when the answer is sent.
func (ix *Index) Samples(
	towns []string, from, to time.Time, step time.Duration, now time.Time,
) messages.Samples {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s, of := ix.s, map[uint32]bool{}
	var counted samples
	if towns == nil {
		counted = ix.samples // the copy shares the maps, and only waits are added to it
	}
	for _, token := range towns {
		of[s.town(token)] = true
		for n := s.towns[s.town(token)].last; n != 0; n = s.row(n).prevTown {
			r := s.row(n)
			if arrived, ends := counted.count(s, r); ends {
				counted.answer(r.At, r.At-arrived, r.prevRun == 0)
			}
		}
	}
	for run := range s.open { // handoffs that wait until now
		if town := s.first(run).town; towns == nil || town != 0 && of[town] {
			counted.wait(s.arrived(run), now.UnixMilli())
		}
	}
	all, took := messages.Samples{StepMs: step.Milliseconds()}, map[int]int64{}
	for at := from; at.Before(to); at = at.Add(step) {
		sample := counted.sum(at, step, min(step, now.Sub(at)), took)
		all.Samples = append(all.Samples, sample)
	}
	all.P50Ms, all.P99Ms = quantile(took, 50), quantile(took, 99)
	return all
}

// sum returns the sample of a step, and adds its times to took; lasted is how much of the step is over.
func (p *samples) sum(
	at time.Time, step, lasted time.Duration, took map[int]int64,
) messages.Sample {
	total, until := newMinute(0), at.Add(step).UnixMilli()/perMinute
	for n := at.UnixMilli() / perMinute; n < until; n++ {
		m := p.minute(n)
		if m == nil {
			continue
		}
		for outcome, count := range m.Outcomes {
			total.Outcomes[outcome] += count
		}
		for bucket, count := range m.Took {
			total.Took[bucket] += count
			took[bucket] += count
		}
		total.Waited += m.Waited
	}
	return messages.Sample{
		At: runevents.Timestamp(at), Results: total.Outcomes,
		P50Ms: quantile(total.Took, 50), P99Ms: quantile(total.Took, 99),
		Waiting: float64(total.Waited*100/max(1, lasted.Milliseconds())) / 100,
	}
}

// quantile returns the least time of the bucket with a percentile of the counted times; nil if no
// times were counted.
func quantile(took map[int]int64, percent int64) *int64 {
	rank := int64(99)
	for _, count := range took {
		rank += count * percent
	}
	rank /= 100
	for _, bucket := range slices.Sorted(maps.Keys(took)) {
		if rank -= took[bucket]; rank <= 0 {
			return new(least(bucket))
		}
	}
	return nil
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
	changed := ix.sampled
	ix.sampled = false
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
		ix.sampled = true
		ix.mu.Unlock()
	}
	return err
}

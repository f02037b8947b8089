package index

import (
	"errors"
	"io/fs"
	"maps"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
)

const (
	// KeptMinutes is how many minutes are kept: a day, and the longest step.
	KeptMinutes = 25 * 60
	tookBuckets = 192
	perMinute   = int64(time.Minute / time.Millisecond)
)

// cancelled counts the handoffs whose run was cancelled, beside the statuses of results.
const cancelled = "cancelled"

// samples count, for each minute, the handoffs whose end is in the log up to Position. Samples
// outlast the rows, which are dropped when the log has forgotten their messages.
type samples struct {
	Position uint64            `json:"position"`
	Minutes  map[int64]*minute `json:"minutes"` // by Unix time in minutes
	newest   int64
}

type minute struct {
	Outcomes map[string]int64 `json:"outcomes,omitzero"`
	// Took counts the times from the arrival of a handoff to its answer, by bucket.
	Took map[int]int64 `json:"took,omitzero"`
	// Waited is the sum of the times, in ms, that handoffs waited or were being applied.
	Waited int64 `json:"waited,omitzero"`
}

func newMinute() *minute {
	return &minute{Outcomes: map[string]int64{}, Took: map[int]int64{}}
}

func (m *minute) add(other *minute) {
	for outcome, count := range other.Outcomes {
		m.Outcomes[outcome] += count
	}
	for bucket, count := range other.Took {
		m.Took[bucket] += count
	}
	m.Waited += other.Waited
}

// of returns a minute; nil for one that is too old.
func (p *samples) of(at int64) *minute {
	if p.Minutes == nil {
		p.Minutes = map[int64]*minute{}
	}
	if at <= p.newest-KeptMinutes {
		return nil
	}
	m := p.Minutes[at]
	if m == nil {
		m = newMinute()
		p.Minutes[at] = m
	}
	if at > p.newest {
		p.newest = at
		for old := range p.Minutes {
			if old <= at-KeptMinutes {
				delete(p.Minutes, old)
			}
		}
	}
	return m
}

// take counts a row if it ends the run of a handoff. It returns when the handoff had arrived.
func (p *samples) take(s *state, r *row) (arrived int64, ends bool) {
	outcome := s.outcome(r)
	if outcome == "" {
		return 0, false
	}
	if m := p.of(r.At / perMinute); m != nil {
		m.Outcomes[outcome]++
	}
	arrived = s.arrived(r.Run)
	if r.PrevRun != 0 { // the handoff has waited, or a game has applied it
		p.wait(arrived, r.At)
	}
	return arrived, true
}

// answer counts the time that an answer took. If waited is set, it also counts as a wait.
func (p *samples) answer(at, took int64, waited bool) {
	m := p.of(at / perMinute)
	if m == nil {
		return
	}
	m.Took[bucket(took)]++
	if waited {
		p.wait(at-took, at)
	}
}

// Answered counts the time from the arrival of a handoff to its answer, which no row has, since a
// row is stamped before its commit. take counts the wait of a run with several rows.
func (ix *Index) Answered(runID string, at time.Time, took time.Duration) {
	hash := fingerprint(runID)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	run := ix.s.runs[ix.s.run(hash)]
	ix.samples.answer(at.UnixMilli(), took.Milliseconds(), run.first == run.last)
}

// wait counts a handoff that waited from one time to another.
func (p *samples) wait(from, to int64) {
	p.of(to / perMinute)
	for at := max(from/perMinute, p.newest-KeptMinutes+1); at <= to/perMinute; at++ {
		if m := p.of(at); m != nil {
			m.Waited += min(to, (at+1)*perMinute) - max(from, at*perMinute)
		}
	}
}

// outcome returns the outcome of the handoff whose run a row ends, "" if it ends none.
func (s *state) outcome(r *row) string {
	words := s.names[wordNames].names
	if !r.has(Ended) || r.PrevRun != 0 && s.row(r.PrevRun).has(Ended) ||
		commitlog.Kind(words[r.Kind]) == commitlog.KindEvents {
		return ""
	}
	if r.ResultStatus == 0 && runevents.RunStatus(words[r.Status]) == runevents.RunAborted {
		return cancelled
	}
	return words[r.ResultStatus]
}

func (s *state) arrived(run uint32) int64 {
	first := s.row(s.runs[run].first)
	return first.At - int64(first.Waited)
}

// bucket returns the bucket of a time: exact up to 16 ms, then eight buckets for each doubling.
func bucket(ms int64) int {
	ms = max(ms, 0)
	if ms < 16 {
		return int(ms)
	}
	doublings := bits.Len64(uint64(ms)) - 4
	return min(8+8*doublings+int(ms>>doublings)-8, tookBuckets-1)
}

// least returns the shortest time of a bucket.
func least(bucket int) int64 {
	if bucket < 16 {
		return int64(bucket)
	}
	doublings := (bucket - 8) / 8
	return int64(bucket-8*doublings) << doublings
}

// sample counts the rows that the samples lack.
func (ix *Index) sample() {
	for n := ix.s.after(ix.samples.Position); n <= ix.s.count; n++ {
		ix.samples.take(ix.s, ix.s.row(n))
	}
	ix.samples.Position = max(ix.samples.Position, ix.s.position)
}

// Samples returns a sample for each step between from and to. It counts the handoffs of towns whose
// commits the log still keeps, or all handoffs if towns is nil. If towns is not nil, answer times
// end at persistedAt, not when the answer is sent.
func (ix *Index) Samples(
	towns []string, from, to time.Time, step time.Duration, now time.Time,
) []messages.Sample {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	s := ix.s
	counted := &samples{Minutes: map[int64]*minute{}, newest: to.UnixMilli() / perMinute}
	for _, token := range towns {
		for n := s.towns[s.town(token)].last; n != 0; n = s.row(n).PrevTown {
			r := s.row(n)
			if arrived, ends := counted.take(s, r); ends {
				counted.answer(r.At, r.At-arrived, r.PrevRun == 0)
			}
			if r.has(First) {
				s.open(counted, r.Run, now)
			}
		}
	}
	if towns == nil {
		for at, m := range ix.samples.Minutes {
			counted.Minutes[at] = newMinute()
			counted.Minutes[at].add(m)
		}
		for run := 1; run < len(s.runs); run++ {
			s.open(counted, uint32(run), now)
			if run%searchTurn == 0 { // see Runs
				ix.mu.RUnlock()
				ix.mu.RLock()
			}
		}
	}
	return counted.steps(from, to, step, now)
}

// open counts a handoff without an end as waiting until now.
func (s *state) open(into *samples, run uint32, now time.Time) {
	first, last := s.row(s.runs[run].first), s.row(s.runs[run].last)
	words := s.names[wordNames].names
	kind := commitlog.Kind(words[first.Kind])
	if last.has(Ended) || kind != commitlog.KindRun && kind != commitlog.KindPending {
		return
	}
	into.wait(s.arrived(run), now.UnixMilli())
}

func (p *samples) steps(
	from, to time.Time, step time.Duration, now time.Time,
) (all []messages.Sample) {
	for at := from; at.Before(to); at = at.Add(step) {
		total, until := newMinute(), at.Add(step).UnixMilli()/perMinute
		for n := at.UnixMilli() / perMinute; n < until; n++ {
			if m := p.Minutes[n]; m != nil {
				total.add(m)
			}
		}
		lasted := max(1, min(step, now.Sub(at)).Milliseconds())
		all = append(all, messages.Sample{
			At: runevents.Timestamp(at), Results: total.Outcomes,
			P50Ms: quantile(total.Took, 50), P99Ms: quantile(total.Took, 99),
			Waiting: float64(total.Waited*100/lasted) / 100,
		})
	}
	return all
}

// quantile returns the least time of the bucket that has a percentile of the counted times; nil
// without times.
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
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	kept := samples{}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil || kept.Position > end {
		ix.config.Logger.Info("the samples are counted anew: their file does not count", "file",
			ix.samplesFile(), "err", err)
		return
	}
	for at := range kept.Minutes {
		kept.newest = max(kept.newest, at)
	}
	ix.samples = kept
}

// keepSamples writes the samples to the file, if there is one.
func (ix *Index) keepSamples() error {
	if ix.file == nil {
		return nil
	}
	ix.mu.RLock()
	data, err := json.Marshal(&ix.samples)
	ix.mu.RUnlock()
	if err == nil {
		err = os.WriteFile(ix.samplesFile()+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(ix.samplesFile()+".new", ix.samplesFile())
	}
	return err
}

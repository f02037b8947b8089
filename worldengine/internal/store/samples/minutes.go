package samples

import (
	"maps"
	"math"
	"slices"
	"time"

	"worldengine/runevents"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
)

const (
	// keptMinutes is how many minutes are kept: a day, and the longest step.
	keptMinutes = 25 * 60
	perMinute   = int64(time.Minute / time.Millisecond)
)

// minutes count, for each of the newest keptMinutes minutes, what became of handoffs. A minute replaces
// the one of keptMinutes before.
type minutes [keptMinutes]minute

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
func (counts *minutes) minute(at int64) *minute {
	m := &counts[uint64(at)%keptMinutes]
	if m.At < at || m.Outcomes == nil || m.Took == nil { // nil: unused, or damaged in the file
		*m = newMinute(at)
	}
	if m.At > at {
		return nil
	}
	return m
}

// addRun counts the outcome of a run, and its wait if it has waited. Times are Unix times in ms.
func (counts *minutes) addRun(run index.EndedRun) {
	at := run.At.UnixMilli()
	if m := counts.minute(at / perMinute); m != nil {
		m.Outcomes[run.Outcome]++
	}
	if run.Waited {
		counts.addWait(run.Arrived.UnixMilli(), at)
	}
}

// addAnswer counts the time that an answer took. If waited is set, it also counts as a wait.
func (counts *minutes) addAnswer(at, took int64, waited bool) {
	m := counts.minute(at / perMinute)
	if m == nil {
		return
	}
	m.Took[bucket(took)]++
	if waited {
		counts.addWait(at-took, at)
	}
}

// addWait counts a handoff that waited from one time to another.
func (counts *minutes) addWait(from, to int64) {
	for at := max(from/perMinute, to/perMinute-keptMinutes+1); at <= to/perMinute; at++ {
		if m := counts.minute(at); m != nil {
			m.Waited += min(to, (at+1)*perMinute) - max(from, at*perMinute)
		}
	}
}

// samples returns a sample for each step between from and to, and the percentiles of all their times
// together.
func (counts *minutes) samples(from, to time.Time, step time.Duration, now time.Time) messages.Samples {
	all, took := messages.Samples{StepMs: step.Milliseconds()}, map[int]int64{}
	for at := from; at.Before(to); at = at.Add(step) {
		all.Samples = append(all.Samples, counts.sum(at, step, min(step, now.Sub(at)), took))
	}
	all.P50Ms, all.P99Ms = quantile(took, 50), quantile(took, 99)
	return all
}

// sum returns the sample of a step, and adds its times to took; lasted is how much of the step is over.
func (counts *minutes) sum(
	at time.Time, step, lasted time.Duration, took map[int]int64,
) messages.Sample {
	total, until := newMinute(0), at.Add(step).UnixMilli()/perMinute
	for n := at.UnixMilli() / perMinute; n < until; n++ {
		m := counts.minute(n)
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
			return new(bucketMin(bucket))
		}
	}
	return nil
}

// bucket returns the bucket of a time; a time twice as long is eight buckets higher.
func bucket(ms int64) int { return int(8 * math.Log2(float64(max(ms, 0)+1))) }

// bucketMin returns the shortest time of a bucket.
func bucketMin(bucket int) int64 { return int64(math.Ceil(math.Exp2(float64(bucket)/8))) - 1 }

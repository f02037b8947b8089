package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// gap is how long a fault kept answers away.
type gap struct {
	any  time.Duration // the longest time without an answer to anybody
	town time.Duration // the longest time that one town was without one
}

// gapSince measures from a moment on to now, for the towns whose client is at home at one of homes.
func (h *hammer) gapSince(from time.Time, homes ...int) gap {
	var all []time.Time
	var g gap
	now := time.Now()
	for _, d := range h.towns {
		if !slices.Contains(homes, d.home) {
			continue
		}
		d.mu.Lock()
		first, _ := slices.BinarySearchFunc(d.times, from, time.Time.Compare)
		times := slices.Clone(d.times[first:])
		d.mu.Unlock()
		g.town = max(g.town, longest(from, times, now))
		all = append(all, times...)
	}
	slices.SortFunc(all, time.Time.Compare)
	g.any = longest(from, all, now)
	return g
}

// answersSince counts the answers from a moment on, for the towns whose client is at home at home.
func (h *hammer) answersSince(from time.Time, home int) (answers int) {
	for _, d := range h.towns {
		if d.home != home {
			continue
		}
		d.mu.Lock()
		first, _ := slices.BinarySearchFunc(d.times, from, time.Time.Compare)
		answers += len(d.times) - first
		d.mu.Unlock()
	}
	return answers
}

func longest(from time.Time, times []time.Time, to time.Time) time.Duration {
	var d time.Duration
	for _, t := range append(times, to) {
		d = max(d, t.Sub(from))
		from = t
	}
	return d
}

// everywhere are the homes of all towns.
var everywhere = []int{0, 1, 2}

// waitAnswers waits until every town of homes has some more answers: service is back for everybody.
func (h *hammer) waitAnswers(more int, homes ...int) {
	h.t.Helper()
	from := time.Now()
	eventually(h.t, 2*time.Minute, "every town is answered", func(context.Context) error {
		for _, d := range h.towns {
			d.mu.Lock()
			first, _ := slices.BinarySearchFunc(d.times, from, time.Time.Compare)
			n, others := len(d.times)-first, maps.Clone(d.others)
			d.mu.Unlock()
			if slices.Contains(homes, d.home) && n < more {
				return fmt.Errorf("%s has %d new answers; %v", d.id, n, others)
			}
		}
		return nil
	})
}

// others counts what came instead of answers, over all towns.
func (h *hammer) others() map[string]int {
	sum := map[string]int{}
	for _, d := range h.towns {
		d.mu.Lock()
		for what, n := range d.others {
			sum[what] += n
		}
		d.mu.Unlock()
	}
	return sum
}

// report logs the gaps of all rounds.
func report(t testing.TB, what string, gaps []gap) {
	t.Helper()
	var all, town []time.Duration
	for _, g := range gaps {
		all, town = append(all, g.any), append(town, g.town)
	}
	t.Logf("%s, %d times: nobody was answered for %s; the worst town for %s", what, len(gaps),
		spread(all), spread(town))
}

// spread is min / median / max.
func spread(d []time.Duration) string {
	slices.Sort(d)
	text := func(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
	return text(d[0]) + " / " + text(d[len(d)/2]) + " / " + text(d[len(d)-1])
}

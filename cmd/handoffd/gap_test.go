package main

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// gap is how long a fault kept answers away.
type gap struct {
	any  time.Duration // the longest time without an answer to anybody
	town time.Duration // the longest time that one town was without one
}

// everywhere are the homes of all towns of a cluster.
var everywhere = []int{0, 1, 2}

// gapSince measures from a moment on to now, for the towns whose client is at home at one of homes.
func (h *hammer) gapSince(from time.Time, homes ...int) gap {
	var all []time.Time
	var g gap
	now := time.Now()
	for _, d := range h.towns {
		if slices.Contains(homes, d.home) {
			times := d.times(from)
			g.town = max(g.town, longest(from, times, now))
			all = append(all, times...)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	g.any = longest(from, all, now)
	return g
}

func longest(from time.Time, times []time.Time, to time.Time) (d time.Duration) {
	for _, t := range append(times, to) {
		d = max(d, t.Sub(from))
		from = t
	}
	return d
}

// waitEach waits until every town of homes has some more answers: service is back for everybody.
func (h *hammer) waitEach(more int, homes ...int) {
	h.t.Helper()
	h.waitTowns(slices.DeleteFunc(slices.Clone(h.towns), func(d *driven) bool {
		return !slices.Contains(homes, d.home)
	}), more)
}

// waitTowns waits until each of some towns has some more answers.
func (h *hammer) waitTowns(towns []*driven, more int) {
	h.t.Helper()
	from := time.Now()
	eventually(h.t, 2*time.Minute, "every town is answered", func(context.Context) error {
		for _, d := range towns {
			if n := len(d.times(from)); n < more {
				return fmt.Errorf("%s has %d new answers; %v", d.id, n, h.others())
			}
		}
		return nil
	})
}

// logGaps logs the gaps of all rounds as min / median / max.
func logGaps(t testing.TB, fault string, gaps []gap) {
	t.Helper()
	spread := func(of func(gap) time.Duration) string {
		var all []time.Duration
		for _, g := range gaps {
			all = append(all, of(g).Round(10*time.Millisecond))
		}
		slices.Sort(all)
		return fmt.Sprintf("%v / %v / %v", all[0], all[len(all)/2], all[len(all)-1])
	}
	t.Logf("%s, %d times: nobody was answered for %s; the worst town for %s", fault, len(gaps),
		spread(func(g gap) time.Duration { return g.any }),
		spread(func(g gap) time.Duration { return g.town }))
}

package bench

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/internal/kit/backoff"
)

// floodDelay is how long a flood runs before the phase beside it begins.
const floodDelay = 300 * time.Millisecond

// workloads take turns.
type workloads struct {
	main   *workload // on the first world
	spread *workload // the same load on towns of all worlds; nil if there is one world
	flood  *workload // as many handoffs as are answered, in the last world; nil for none
}

// all returns the loads that there are.
func (s *workloads) all() []*workload {
	return slices.DeleteFunc([]*workload{s.main, s.spread, s.flood}, func(l *workload) bool { return l == nil })
}

// measure measures the echo, and the phases of all loads by turns.
func (s *workloads) measure(ctx context.Context, r *Report) error {
	if err := s.main.prepare(100); err != nil {
		return err
	}
	warm, err := s.main.handoffs(ctx, min(max(s.main.Duration/5, 50*time.Millisecond), time.Second), 0)
	if err != nil {
		return err
	}
	if err := s.main.echo(ctx, r); err != nil {
		return err
	}
	expected := warm.PerSecond // about how many handoffs a second are answered
	if s.main.Rate > 0 {
		expected = min(expected, s.main.Rate)
	}
	if s.spread != nil {
		r.Worlds = &Worlds{Count: s.main.Worlds}
	}
	for range s.main.Phases {
		if err := s.measurePhase(ctx, expected, r); err != nil {
			return err
		}
	}
	last := r.Phases[len(r.Phases)-1]
	r.Handoffs, r.Costs = last.Rate, last.Costs
	r.Ratio = r.Executed / r.Echo.PerSecond
	if r.Worlds != nil {
		r.Worlds.compare(r.Phases)
	}
	return nil
}

// measurePhase measures one phase of each load.
func (s *workloads) measurePhase(ctx context.Context, expected float64, r *Report) error {
	phase, err := s.main.phase(ctx, expected)
	if err != nil {
		return err
	}
	r.Phases = append(r.Phases, phase)
	if s.spread == nil {
		return nil
	}
	if phase, err = s.spread.phase(ctx, expected); err != nil {
		return err
	}
	r.Worlds.Phases = append(r.Worlds.Phases, phase)
	if s.flood == nil {
		return nil
	}
	phase, flood, err := s.flooded(ctx, expected)
	r.Worlds.Flooded, r.Worlds.Flood = append(r.Worlds.Flooded, phase), append(r.Worlds.Flood, flood)
	return err
}

// flooded measures a phase of the main load while the flood runs, and the flood.
func (s *workloads) flooded(ctx context.Context, expected float64) (phase Phase, flood Rate, err error) {
	for _, l := range []*workload{s.flood, s.main} {
		if err := l.makeAhead(expected); err != nil {
			return phase, flood, err
		}
	}
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error {
		got, err := s.flood.handoffs(running, s.flood.Duration, 0)
		flood = got.Rate
		return err
	})
	both.Go(func() (err error) {
		if err = backoff.Sleep(running, floodDelay); err == nil {
			phase, err = s.main.handoffs(running, s.main.Duration, s.main.Rate)
		}
		return err
	})
	return phase, flood, both.Wait()
}

// compare sets the ratios of the medians of the phases.
func (r *Worlds) compare(one []Phase) {
	executed := func(p Phase) float64 { return p.Executed }
	p99 := func(p Phase) float64 { return p.P99 }
	r.OfOne = median(r.Phases, executed) / median(one, executed)
	if len(r.Flooded) > 0 {
		r.FloodedP99 = median(r.Flooded, p99) / median(one, p99)
	}
}

// median returns the median of a figure of phases; the upper one of two.
func median(phases []Phase, figure func(Phase) float64) float64 {
	var all []float64
	for _, phase := range phases {
		all = append(all, figure(phase))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

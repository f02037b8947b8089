package bench

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/internal/kit/backoff"
)

// floodLead is how long a flood runs before the phase beside it begins.
const floodLead = 300 * time.Millisecond

// sides are the loads that take turns with the load on the first world.
type sides struct {
	spread *load // the same load on towns of all worlds
	flood  *load // as many handoffs as are answered, in the last world; nil for none
}

// setUpSides puts the towns of the other loads. It returns nil if there is one world.
func (l *load) setUpSides(ctx context.Context) (*sides, error) {
	if l.Worlds == 1 {
		return nil, nil
	}
	all := l.WorldNames(l.target.World)
	s := &sides{spread: &load{Config: l.Config, target: l.target, worlds: all}}
	if l.Flood > 0 {
		s.flood = &load{target: l.target, worlds: all[len(all)-1:], Config: &Config{
			Towns: l.Flood, Concurrency: l.Flood, Connections: l.Connections,
			Duration: l.Duration + floodLead,
		}}
	}
	for _, load := range s.loads() {
		if err := load.setUp(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// loads returns the loads that there are.
func (s *sides) loads() []*load {
	switch {
	case s == nil:
		return nil
	case s.flood == nil:
		return []*load{s.spread}
	}
	return []*load{s.spread, s.flood}
}

// measure measures one phase of each side. expected is about how many handoffs a second are answered.
func (s *sides) measure(ctx context.Context, l *load, expected float64, r *Worlds) error {
	phase, err := s.spread.phase(ctx, expected)
	if err != nil {
		return err
	}
	r.Phases = append(r.Phases, phase)
	if s.flood == nil {
		return nil
	}
	phase, flood, err := s.flooded(ctx, l, expected)
	r.Flooded, r.Flood = append(r.Flooded, phase), append(r.Flood, flood)
	return err
}

// flooded measures a phase of l while the flood runs, and the flood.
func (s *sides) flooded(
	ctx context.Context, l *load, expected float64,
) (phase Phase, flood Rate, err error) {
	if err := s.flood.makeAhead(expected); err != nil {
		return phase, flood, err
	}
	if err := l.makeAhead(expected); err != nil {
		return phase, flood, err
	}
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error {
		got, err := s.flood.handoffs(running, s.flood.Duration, 0)
		flood = got.Rate
		return err
	})
	both.Go(func() (err error) {
		if err = backoff.Sleep(running, floodLead); err == nil {
			phase, err = l.handoffs(running, l.Duration, l.Rate)
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

package handoffctl

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"worldengine/worldengine/internal/kit/backoff"
)

// floodLead is how long a flood runs before the phase beside it begins.
const floodLead = 300 * time.Millisecond

// sides are the loads that take turns with the load on the first world.
type sides struct {
	spread *bench // the same load on towns of all worlds
	flood  *bench // as many handoffs as are answered, in the last world; nil for none
}

// allWorlds returns the names of the worlds of the private server; the first is the one of the flags.
func (b *bench) allWorlds() []string {
	names := []string{b.app.flags.World}
	for i := 2; i <= b.Worlds; i++ {
		names = append(names, fmt.Sprintf("bench-world-%d", i))
	}
	return names
}

// setUpSides puts the towns of the other loads. It returns nil if there is one world.
func (b *bench) setUpSides(ctx context.Context) (*sides, error) {
	if b.Worlds == 1 {
		return nil, nil
	}
	all := b.allWorlds()
	s := &sides{spread: &bench{benchCommand: b.benchCommand, app: b.app, worlds: all}}
	if b.Flood > 0 {
		s.flood = &bench{app: b.app, worlds: all[len(all)-1:], benchCommand: &benchCommand{
			Towns: b.Flood, Concurrency: b.Flood, Connections: b.Connections,
			Duration: b.Duration + floodLead,
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
func (s *sides) loads() []*bench {
	switch {
	case s == nil:
		return nil
	case s.flood == nil:
		return []*bench{s.spread}
	}
	return []*bench{s.spread, s.flood}
}

// measure measures one phase of each side. expected is about how many handoffs a second are answered.
func (s *sides) measure(ctx context.Context, b *bench, expected float64, r *benchWorlds) error {
	phase, err := s.spread.phase(ctx, expected)
	if err != nil {
		return err
	}
	r.Phases = append(r.Phases, phase)
	if s.flood == nil {
		return nil
	}
	phase, flood, err := s.flooded(ctx, b, expected)
	r.Flooded, r.Flood = append(r.Flooded, phase), append(r.Flood, flood)
	return err
}

// flooded measures a phase of b while the flood runs, and the flood.
func (s *sides) flooded(
	ctx context.Context, b *bench, expected float64,
) (phase benchPhase, flood benchRate, err error) {
	if err := s.flood.makeAhead(expected); err != nil {
		return phase, flood, err
	}
	if err := b.makeAhead(expected); err != nil {
		return phase, flood, err
	}
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error {
		got, err := s.flood.handoffs(running, s.flood.Duration, 0)
		flood = got.benchRate
		return err
	})
	both.Go(func() (err error) {
		if err = backoff.Sleep(running, floodLead); err == nil {
			phase, err = b.handoffs(running, b.Duration, b.Rate)
		}
		return err
	})
	return phase, flood, both.Wait()
}

// compare sets the ratios of the medians of the phases.
func (r *benchWorlds) compare(one []benchPhase) {
	executed := func(p benchPhase) float64 { return p.Executed }
	p99 := func(p benchPhase) float64 { return p.P99 }
	r.OfOne = median(r.Phases, executed) / median(one, executed)
	if len(r.Flooded) > 0 {
		r.FloodedP99 = median(r.Flooded, p99) / median(one, p99)
	}
}

// median returns the median of a figure of phases; the upper one of two.
func median(phases []benchPhase, figure func(benchPhase) float64) float64 {
	var all []float64
	for _, phase := range phases {
		all = append(all, figure(phase))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A pause outlives the loss of any node and any engine: of a town, while all others are served, and
// of the world. What waits through it is carried out once when it ends.
func TestFaultsWhilePaused(t *testing.T) {
	long(t)
	w := startWorld(t, false)
	w.drive(drivenTowns, requestTimeout)
	town := map[string]string{"townId": w.hammer.towns[0].id, "reason": "to see whether it holds"}
	world := map[string]string{"reason": "to see whether it holds"}
	var gaps []gap
	for k := range *rounds * size {
		i, writer, from := k%size, w.writer(), time.Now()
		w.signal("control.pause", town)
		still := w.hammer.quiet(0)
		w.kill(i)
		w.engines[writer].kill()
		w.hammer.waitOthers(0, 5)
		gaps = append(gaps, w.hammer.gapSince(from, 1, 2))
		w.requirePaused(town)
		require.Equal(t, still, w.hammer.counts(0), "a paused town was answered for")
		w.start(i)
		w.startEngine(writer)
		w.waitEngine(writer)
		w.waitAll()
		w.waitReplicas(w.clients[(i+1)%size])

		w.signal("control.pause", world)
		writer = w.writer()
		all := w.hammer.quiet(everyTown(w.hammer)...)
		w.kill(i)
		w.engines[writer].kill()
		w.requirePaused(world)
		w.start(i)
		w.startEngine(writer)
		w.waitEngine(writer)
		w.waitAll()
		w.waitReplicas(w.clients[(i+1)%size])
		w.requirePaused(world)
		require.Equal(t, all, w.hammer.counts(everyTown(w.hammer)...),
			"a paused world was answered for")
		w.signal("control.resume", world)
		w.hammer.waitOthers(0, 5)
		w.signal("control.resume", town)
		w.hammer.waitAnswers(5, everywhere...)
	}
	report(t, "a node and an engine killed while a town is paused, as the others see it", gaps)
	w.finish()
}

// signal gives a signal. What got no answer may have been stored, so that a second one is refused
// with 409 or does nothing.
func (w *world) signal(verb string, body map[string]string) {
	w.t.Helper()
	var reply struct{ Status string }
	ask(w.t, w.clients[0], verb, body, &reply)
}

// requirePaused asks the engine that serves, through every node.
func (w *world) requirePaused(what map[string]string) {
	w.t.Helper()
	request := map[string]string{}
	if id, ok := what["townId"]; ok {
		request["townId"] = id
	}
	for range 3 * size {
		for _, nc := range w.clients {
			var reply struct{ Status string }
			ask(w.t, nc, "control.get", request, &reply)
			require.Equal(w.t, "PAUSED", reply.Status)
		}
	}
}

func everyTown(h *hammer) (all []int) {
	for n := range h.towns {
		all = append(all, n)
	}
	return all
}

// counts returns how many answers there were for some towns, by their number.
func (h *hammer) counts(towns ...int) (all []int) {
	for _, n := range towns {
		d := h.towns[n]
		d.mu.Lock()
		all = append(all, len(d.times))
		d.mu.Unlock()
	}
	return all
}

// quiet waits until some towns get no answers any more, and returns how many they had: what was in
// hand when a pause began has come to its end then.
func (h *hammer) quiet(towns ...int) []int {
	h.t.Helper()
	last, since := h.counts(towns...), time.Now()
	eventually(h.t, time.Minute, "no more answers", func(context.Context) error {
		now := h.counts(towns...)
		for i := range now {
			if now[i] != last[i] {
				last, since = now, time.Now()
				break
			}
		}
		if time.Since(since) < 2*requestTimeout {
			return errors.New("towns are still answered for")
		}
		return nil
	})
	return last
}

// waitOthers waits until every town but one has some more answers.
func (h *hammer) waitOthers(but, more int) {
	h.t.Helper()
	all := everyTown(h)
	others := append(all[:but:but], all[but+1:]...)
	from := h.counts(others...)
	eventually(h.t, time.Minute, "every other town is answered", func(context.Context) error {
		for i, n := range h.counts(others...) {
			if n < from[i]+more {
				return errors.New(h.towns[others[i]].id)
			}
		}
		return nil
	})
}

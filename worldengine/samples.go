package worldengine

import (
	"time"

	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Answered counts the time from the arrival of a handoff to its answer, for the samples.
func (e *Engine) Answered(runID string, took time.Duration) {
	e.index.Answered(runID, e.config.Now(), took)
}

// Samples returns at most so many samples of the last minutes, of whole minutes each, of the handoffs
// of towns, or with nil of all. The last one goes on.
func (e *Engine) Samples(townIDs []string, minutes, points int) messages.Samples {
	step := time.Duration((minutes+points-1)/points) * time.Minute
	now := e.config.Now().UTC()
	to := now.Truncate(step).Add(step)
	from := to.Add(-time.Duration(minutes) * time.Minute).Truncate(step)
	var tokens []string
	if townIDs != nil {
		tokens = []string{}
	}
	for _, id := range townIDs {
		tokens = append(tokens, wire.TownToken(id))
	}
	return messages.Samples{
		StepMs: step.Milliseconds(), Samples: e.index.Samples(tokens, from, to, step, now),
	}
}

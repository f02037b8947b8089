// Package samples counts what became of the handoffs of each minute of the last 25 hours, and how long they
// waited for it.
//
// Outcomes are counted from the rows of an index, once; answer times come from Answered. Samples have a file of
// their own, since on a busy day the log forgets messages sooner.
package samples

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/worldengine/internal/kit/backoff"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/kit/recent"
	"worldengine/worldengine/internal/store/index"
	"worldengine/worldengine/messages"
)

// maxAnswers is the number of runs whose answer times are kept, in some 7 MB.
const maxAnswers = 50_000

// flushInterval is the pause between two writes of the samples.
const flushInterval = time.Minute

// SampledIndex is an index of a log with samples of its runs. It is safe for concurrent use.
type SampledIndex struct {
	*index.Index
	config  index.Config
	answers *recent.Map[string, time.Duration] // times to the answer, by run
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex // never held while the index is asked, which may be calling count
	counted counts
	stored  *counts // of the file, until the index has the last run in it
	changed bool    // since the file was written
}

// counts count the handoffs whose end the log has up to the one at Position, which ended at At. They outlast the
// rows, which are dropped when the log has forgotten their messages. A file of an earlier program has no At, and
// counts the handoffs up to any Position.
type counts struct {
	Position uint64    `json:"position"`
	At       time.Time `json:"at"`
	Minutes  minutes   `json:"minutes"`
}

// Open opens the index of a log, and its samples in the file "samples" of the same directory. If the index has no
// usable file either, its rows are counted anew, and answer times are lost.
func Open(ctx context.Context, config index.Config) (ix *SampledIndex, err error) {
	ix = &SampledIndex{config: config, answers: recent.NewMap[string, time.Duration](maxAnswers)}
	if config.Dir != "" {
		ix.load()
	}
	config.OnEnded = ix.count
	if ix.Index, err = index.Open(ctx, config); err != nil {
		return nil, err
	}
	position := ix.Position()
	ix.mu.Lock()
	if stored := ix.stored; stored != nil && stored.At.IsZero() && stored.Position <= position {
		ix.counted, ix.changed = *stored, true
	}
	ix.stored = nil // they are of another log, or have been found
	ix.mu.Unlock()
	ctx, ix.stop = context.WithCancel(context.WithoutCancel(ctx))
	ix.done.Go(func() { ix.flushLoop(ctx) })
	return ix, nil
}

// Close ends the index after its rows and samples are in their files.
func (ix *SampledIndex) Close() error {
	ix.stop()
	ix.done.Wait()
	return errors.Join(ix.Index.Close(), ix.flush())
}

// count counts a run that has ended. When the last run in the file comes, the counts of the file replace the ones
// of the rows up to that run: the file also has rows that the log has forgotten, and answer times.
func (ix *SampledIndex) count(run index.EndedRun) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	switch stored := ix.stored; {
	case stored == nil:
	case stored.At.IsZero() && stored.Position < run.Seq:
		ix.counted, ix.stored = *stored, nil
	case stored.Position == run.Seq && stored.At.Equal(run.At):
		ix.counted, ix.stored = *stored, nil
		return
	}
	ix.counted.Minutes.addRun(run)
	ix.counted.Position, ix.counted.At, ix.changed = run.Seq, run.At, true
}

// Answered counts the time from the arrival of a handoff to its answer. No row has that time, since
// a row's At precedes its commit. A run of several rows is counted as a wait when it ends.
func (ix *SampledIndex) Answered(runID string, at time.Time, took time.Duration) {
	ix.answers.Add(runID, took)
	waited := ix.HasOneRow(runID)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.counted.Minutes.addAnswer(at.UnixMilli(), took.Milliseconds(), waited)
	ix.changed = true
}

// AnswerTime returns the time from the arrival of a run's handoff to its answer, if this process has answered
// it lately.
func (ix *SampledIndex) AnswerTime(runID string) (took time.Duration, known bool) {
	return ix.answers.Get(runID)
}

// Samples returns a sample for each step between from and to, and the percentiles of all their times
// together. If towns is nil, it counts all handoffs. Else it counts those handoffs of the towns whose
// commits the log still keeps, and answer times end at persistedAt, not when the answer is sent.
func (ix *SampledIndex) Samples(
	towns []string, from, to time.Time, step time.Duration, now time.Time,
) messages.Samples {
	waiting := ix.OpenArrivals(towns)
	var counted minutes
	for _, town := range towns {
		for _, run := range ix.EndedRuns(town) {
			counted.addRun(run)
			at := run.At.UnixMilli()
			counted.addAnswer(at, at-run.Arrived.UnixMilli(), !run.Waited)
		}
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if towns == nil {
		counted = ix.counted.Minutes // the copy shares the maps, and only waits are added to it
	}
	for _, arrived := range waiting {
		counted.addWait(arrived.UnixMilli(), now.UnixMilli())
	}
	return counted.samples(from, to, step, now)
}

func (ix *SampledIndex) file() string { return filepath.Join(ix.config.Dir, "samples") }

// load reads the samples of the file.
func (ix *SampledIndex) load() {
	data, err := os.ReadFile(ix.file())
	if err == nil {
		err = json.Unmarshal(data, &ix.stored)
	}
	if err != nil {
		ix.stored = nil
		ix.config.Logger.Info("the samples are counted anew: their file does not count", "file", ix.file(), "err", err)
	}
}

// flushLoop writes the samples once a minute until ctx ends.
func (ix *SampledIndex) flushLoop(ctx context.Context) {
	for backoff.Sleep(ctx, flushInterval) == nil {
		if err := ix.flush(); err != nil {
			ix.config.Logger.Warn("the samples of the index cannot be written", "err", err)
		}
	}
}

// flush writes the samples to the file, if there is one and they have changed.
func (ix *SampledIndex) flush() error {
	if ix.config.Dir == "" {
		return nil
	}
	ix.mu.Lock()
	changed := ix.changed
	ix.changed = false
	var data []byte
	var err error
	if changed {
		data, err = json.Marshal(&ix.counted)
	}
	ix.mu.Unlock()
	if !changed {
		return nil
	}
	if err == nil {
		err = platform.ReplaceFile(ix.file(), data)
	}
	if err != nil {
		ix.mu.Lock()
		ix.changed = true
		ix.mu.Unlock()
	}
	return err
}

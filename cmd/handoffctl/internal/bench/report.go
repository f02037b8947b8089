package bench

import (
	"runtime"
	"slices"
	"time"

	"worldengine/handoff"
)

// Report is what a run measured. Its JSON is what handoffctl bench -o json prints.
type Report struct {
	// Server is the URL of what was measured.
	Server string `json:"server"`
	// Sync is the sync mode of a server that was started for the run; its caller sets it.
	Sync string `json:"sync,omitzero"`
	// InProcess reports whether the server ran in this process, so that CPUMicros counts it too;
	// the caller sets it.
	InProcess bool `json:"inProcess"`

	World       string  `json:"world"`
	Towns       int     `json:"towns"`
	Concurrency int     `json:"concurrency"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	Rate        float64 `json:"rate,omitzero"`
	Mix         string  `json:"mix"`
	Go          string  `json:"go"`
	Platform    string  `json:"platform"`
	GOMAXPROCS  int     `json:"gomaxprocs"`
	// HandoffBytes and ResultBytes are the sizes of the bodies, the echo's too.
	HandoffBytes int `json:"handoffBytes"`
	ResultBytes  int `json:"resultBytes"`

	Echo     Rate `json:"echo"`
	Handoffs Rate `json:"handoffs"`
	// Append is the bare guarded append, and OfAppend the executed handoffs to it; AppendUnknown
	// why it could not be measured.
	Append        *Append `json:"append,omitzero"`
	OfAppend      float64 `json:"ratioToAppend,omitzero"`
	AppendUnknown string  `json:"appendUnknown,omitzero"`
	// Statuses are the handoffs by status, a second.
	Statuses map[handoff.Status]float64 `json:"statusesPerSecond"`
	// Executed is the executed handoffs a second, Ratio that to the echo.
	Executed float64 `json:"executedPerSecond"`
	Ratio    float64 `json:"ratio"`
	// Phases has each phase of handoffs where there was more than one, in their order. What else is
	// said of handoffs is of the last one, Retries and Wrong of all.
	Phases []Phase `json:"phases,omitempty"`
	// CPUMicros is the processor time of this process for one handoff, in microseconds, and
	// ServerCPUMicros that of the server, by its own statistics; 0 where the server is in this
	// process too, or where it is not known.
	CPUMicros       float64 `json:"cpuMicrosPerHandoff"`
	ServerCPUMicros float64 `json:"serverCpuMicrosPerHandoff,omitzero"`
	// Retries counts the answers of 429 and 503 after which a handoff was sent again.
	Retries int `json:"retries"`
	// PauseShare is what share of their time the workers made further handoffs, 0 to 1.
	PauseShare float64 `json:"pauseShare"`
	// Wrong counts the answers, and towns at the end, that are not as predicted; Examples has
	// some.
	Wrong    int      `json:"wrong"`
	Examples []string `json:"wrongExamples,omitempty"`
	// Followers is what is derived from the log; FollowersUnknown why it could not be read.
	Followers        []Lag  `json:"followers,omitempty"`
	FollowersUnknown string `json:"followersUnknown,omitzero"`
	// Projections is absent where the server projects nothing.
	Projections *Projections `json:"projections,omitzero"`
}

// Rate is how often something was done, and how long each took.
type Rate struct {
	Count     int     `json:"count"`
	PerSecond float64 `json:"perSecond"`
	// The latencies in milliseconds.
	P50 float64 `json:"p50Ms"`
	P90 float64 `json:"p90Ms"`
	P99 float64 `json:"p99Ms"`
	Max float64 `json:"maxMs"`
}

// Phase is one of several phases of handoffs.
type Phase struct {
	Rate
	ServerCPUMicros float64 `json:"serverCpuMicrosPerHandoff,omitzero"`
}

func newReport(config *Config) *Report {
	return &Report{
		World: config.World, Towns: config.Towns, Concurrency: config.Concurrency,
		Connections: config.Connections, Seconds: config.Duration.Seconds(),
		Rate: config.Rate, Mix: config.Mix.String(),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		GOMAXPROCS: runtime.GOMAXPROCS(0),
	}
}

// addHandoffs enters what the workers did in a phase.
func (r *Report) addHandoffs(p *phase, workers []*worker) {
	r.Handoffs = rateOf(p.latencies, p.elapsed)
	r.Statuses = map[handoff.Status]float64{}
	var pause time.Duration
	for _, w := range workers {
		for status, n := range w.counts {
			r.Statuses[status] += float64(n) / p.elapsed.Seconds()
		}
		r.Retries += w.retries
		pause += w.pause
		r.Wrong += w.wrong
		r.Examples = append(r.Examples, w.examples...)
		w.wrong, w.examples = 0, nil
	}
	r.Examples = r.Examples[:min(len(r.Examples), maxExamples)]
	r.Executed = r.Statuses[handoff.Executed]
	if r.Echo.PerSecond > 0 {
		r.Ratio = r.Executed / r.Echo.PerSecond
	}
	if n := len(p.latencies); n > 0 {
		r.CPUMicros = float64(p.cpu.Microseconds()) / float64(n)
		r.ServerCPUMicros = float64(p.serverCPU.Microseconds()) / float64(n)
	}
	r.PauseShare = pause.Seconds() / (p.elapsed.Seconds() * float64(len(workers)))
}

func (r *Report) blame(example string) {
	r.Wrong++
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, example)
	}
}

// rateOf sorts the latencies of what was done in some time.
func rateOf(latencies []time.Duration, elapsed time.Duration) Rate {
	r := Rate{Count: len(latencies), PerSecond: float64(len(latencies)) / elapsed.Seconds()}
	if len(latencies) == 0 {
		return r
	}
	slices.Sort(latencies)
	r.P50, r.P90, r.P99 = percentile(latencies, 50), percentile(latencies, 90),
		percentile(latencies, 99)
	r.Max = milliseconds(latencies[len(latencies)-1])
	return r
}

// percentile returns the nearest-rank percentile of sorted latencies, in milliseconds.
func percentile(sorted []time.Duration, p int) float64 {
	rank := (len(sorted)*p + 99) / 100
	return milliseconds(sorted[max(rank, 1)-1])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

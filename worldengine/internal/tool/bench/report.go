package bench

import (
	"slices"
	"time"
)

// Report has the findings of a benchmark.
type Report struct {
	Server string `json:"server"`
	// InProcess is set if bench started a private server: CPUMicros then includes the server's time.
	// Sync is that server's sync mode.
	Sync      string `json:"sync,omitzero"`
	InProcess bool   `json:"inProcess"`

	World       string  `json:"world"`
	Towns       int     `json:"towns"`
	Concurrency int     `json:"concurrency"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	Rate        float64 `json:"rate,omitzero"`
	// HandoffBytes and ResultBytes are the sizes of a handoff and its result. The echo's messages have
	// the same sizes.
	HandoffBytes int `json:"handoffBytes"`
	ResultBytes  int `json:"resultBytes"`

	Echo Rate `json:"echo"`
	// Handoffs and Costs describe the last of Phases.
	Handoffs Rate    `json:"handoffs"`
	Phases   []Phase `json:"phases"`
	Costs
	// Ratio is the number of executed handoffs per echo, OfAppend the number per bare append.
	// AppendUnknown is the reason why Append is missing.
	Ratio         float64 `json:"ratio"`
	OfAppend      float64 `json:"ratioToAppend,omitzero"`
	Append        *Append `json:"append,omitzero"`
	AppendUnknown string  `json:"appendUnknown,omitzero"`
	// Worlds compares several worlds with the first one; nil if there is one world.
	Worlds *Worlds `json:"worlds,omitempty"`
	// Wrong counts the answers, and the final states of towns, that are not as predicted. Examples has
	// some of them.
	Wrong    int      `json:"wrong"`
	Examples []string `json:"wrongExamples,omitempty"`
}

// Phase is one phase of handoffs.
type Phase struct {
	Rate
	Costs
}

// Costs is the rate of executed handoffs of a phase, and their processor time.
type Costs struct {
	// Executed is how many handoffs a second were answered as predicted.
	Executed float64 `json:"executedPerSecond"`
	// CPUMicros is the processor time of this process for one handoff, in microseconds.
	// ServerCPUMicros is the server's time for it, from the server's statistics; 0 if unknown.
	CPUMicros       float64 `json:"cpuMicrosPerHandoff"`
	ServerCPUMicros float64 `json:"serverCpuMicrosPerHandoff,omitzero"`
}

// Worlds describes the phases on several worlds, which take turns with those on the first world.
type Worlds struct {
	Count int `json:"count"`
	// Phases spread the load over all worlds. OfOne is their executed handoffs per one in the first
	// world.
	Phases []Phase `json:"phases"`
	OfOne  float64 `json:"ratioToOneWorld"`
	// Flooded are the phases in the first world while Flood was answered in another one. FloodedP99 is
	// their p99 by the one without a flood.
	Flooded    []Phase `json:"flooded,omitempty"`
	Flood      []Rate  `json:"flood,omitempty"`
	FloodedP99 float64 `json:"floodedP99Ratio,omitzero"`
}

// Append is the rate of bare guarded appends, and the size of each.
type Append struct {
	Rate
	Bytes int `json:"bytes"`
}

// Rate is the rate of an operation, and its latencies.
type Rate struct {
	Count     int     `json:"count"`
	PerSecond float64 `json:"perSecond"`
	// The latencies in milliseconds.
	P50 float64 `json:"p50Ms"`
	P90 float64 `json:"p90Ms"`
	P99 float64 `json:"p99Ms"`
	Max float64 `json:"maxMs"`
}

// rateOf returns the rate of the operations in an elapsed time. It sorts their latencies;
// percentiles are nearest-rank.
func rateOf(latencies []time.Duration, elapsed time.Duration) Rate {
	n := len(latencies)
	if n == 0 {
		return Rate{}
	}
	slices.Sort(latencies)
	percentile := func(p int) float64 {
		return float64(latencies[(n*p+99)/100-1].Microseconds()) / 1000
	}
	return Rate{
		Count: n, PerSecond: float64(n) / elapsed.Seconds(), P50: percentile(50),
		P90: percentile(90), P99: percentile(99), Max: percentile(100),
	}
}

package handoffctl

import (
	"fmt"
	"slices"
	"time"
)

type benchReport struct {
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

	Echo benchRate `json:"echo"`
	// Handoffs and benchCosts describe the last of Phases.
	Handoffs benchRate    `json:"handoffs"`
	Phases   []benchPhase `json:"phases"`
	benchCosts
	// Ratio is the number of executed handoffs per echo, OfAppend the number per bare append.
	// AppendUnknown is the reason why Append is missing.
	Ratio         float64      `json:"ratio"`
	OfAppend      float64      `json:"ratioToAppend,omitzero"`
	Append        *benchAppend `json:"append,omitzero"`
	AppendUnknown string       `json:"appendUnknown,omitzero"`
	// Worlds compares several worlds with the first one; nil if there is one world.
	Worlds *benchWorlds `json:"worlds,omitempty"`
	// Wrong counts the answers, and the final states of towns, that are not as predicted. Examples has
	// some of them.
	Wrong    int      `json:"wrong"`
	Examples []string `json:"wrongExamples,omitempty"`
}

// benchPhase is one phase of handoffs.
type benchPhase struct {
	benchRate
	benchCosts
}

// benchCosts is the rate of executed handoffs of a phase, and their processor time.
type benchCosts struct {
	// Executed is how many handoffs a second were answered as predicted.
	Executed float64 `json:"executedPerSecond"`
	// CPUMicros is the processor time of this process for one handoff, in microseconds.
	// ServerCPUMicros is the server's time for it, from the server's statistics; 0 if unknown.
	CPUMicros       float64 `json:"cpuMicrosPerHandoff"`
	ServerCPUMicros float64 `json:"serverCpuMicrosPerHandoff,omitzero"`
}

// benchWorlds describes the phases on several worlds, which take turns with those on the first world.
type benchWorlds struct {
	Count int `json:"count"`
	// Phases spread the load over all worlds. OfOne is their executed handoffs per one in the first
	// world.
	Phases []benchPhase `json:"phases"`
	OfOne  float64      `json:"ratioToOneWorld"`
	// Flooded are the phases in the first world while Flood was answered in another one. FloodedP99 is
	// their p99 by the one without a flood.
	Flooded    []benchPhase `json:"flooded,omitempty"`
	Flood      []benchRate  `json:"flood,omitempty"`
	FloodedP99 float64      `json:"floodedP99Ratio,omitzero"`
}

// benchAppend is the rate of bare guarded appends, and the size of each.
type benchAppend struct {
	benchRate
	Bytes int `json:"bytes"`
}

// benchRate is the rate of an operation, and its latencies.
type benchRate struct {
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
func rateOf(latencies []time.Duration, elapsed time.Duration) benchRate {
	n := len(latencies)
	if n == 0 {
		return benchRate{}
	}
	slices.Sort(latencies)
	percentile := func(p int) float64 {
		return float64(latencies[(n*p+99)/100-1].Microseconds()) / 1000
	}
	return benchRate{
		Count: n, PerSecond: float64(n) / elapsed.Seconds(), P50: percentile(50),
		P90: percentile(90), P99: percentile(99), Max: percentile(100),
	}
}

// bench writes the report for people.
func (t table) bench(r *benchReport) {
	kind, whose := "joined", "this client alone"
	if r.InProcess {
		kind, whose = "private, sync "+r.Sync, "client and server, which share this process"
	}
	t.linef("server %s (%s), world %s", r.Server, kind, r.World)
	t.linef("%d towns, %d in flight over %d connections, %gs each phase; a handoff has %d bytes, "+
		"a result %d", r.Towns, r.Concurrency, r.Connections, r.Seconds, r.HandoffBytes, r.ResultBytes)
	if r.Rate > 0 {
		t.linef("%g handoffs a second are offered; latencies count from when they are due", r.Rate)
	}
	t.linef("\nPHASE\tPER SECOND\tP50 MS\tP90 MS\tP99 MS\tMAX MS")
	row := func(name string, rate benchRate) {
		t.linef("%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f", name, rate.PerSecond, rate.P50, rate.P90, rate.P99,
			rate.Max)
	}
	row("echo", r.Echo)
	ofAppend := "unknown: " + r.AppendUnknown
	if r.Append != nil {
		row("append", r.Append.benchRate)
		ofAppend = fmt.Sprintf("%.3f executed handoffs per bare guarded append of the same %d bytes",
			r.OfAppend, r.Append.Bytes)
	}
	for i, phase := range r.Phases {
		row("handoffs", phase.benchRate)
		r.Worlds.eachRow(i, row)
	}
	t.linef("")
	t.linef("ratio\t%.3f executed handoffs per plain request-reply", r.Ratio)
	t.linef("of append\t%s", ofAppend)
	if r.Worlds != nil {
		t.linef("worlds\t%.3f executed handoffs in %d worlds per one in one world, by the medians of the phases",
			r.Worlds.OfOne, r.Worlds.Count)
	}
	if r.Worlds != nil && r.Worlds.FloodedP99 > 0 {
		t.linef("fairness\t%.2f times the calm p99 while another world is flooded", r.Worlds.FloodedP99)
	}
	t.linef("processor\t%.0f µs a handoff (%s)", r.CPUMicros, whose)
	if r.ServerCPUMicros > 0 && !r.InProcess {
		t.linef("\t%.0f µs a handoff (the server alone)", r.ServerCPUMicros)
	}
	t.linef("wrong\t%d", r.Wrong)
	for _, example := range r.Examples {
		t.linef("\t%s", example)
	}
}

// eachRow calls row for the phases on several worlds that followed phase i on one.
func (r *benchWorlds) eachRow(i int, row func(name string, rate benchRate)) {
	if r == nil {
		return
	}
	row(fmt.Sprintf("%d worlds", r.Count), r.Phases[i].benchRate)
	if len(r.Flooded) > 0 {
		row("flooded", r.Flooded[i].benchRate)
		row("flood", r.Flood[i])
	}
}

package bench

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// maxExamples bounds the wrong answers that the report describes.
const maxExamples = 5

// Report is the outcome of a run. Its JSON is what handoffctl bench -o json prints.
type Report struct {
	Server string `json:"server"`
	// Sync is the sync mode of a server that was started for the run, and InProcess says that there
	// was one, so that CPUMicros counts it too; the caller sets both.
	Sync      string `json:"sync,omitzero"`
	InProcess bool   `json:"inProcess"`

	World       string  `json:"world"`
	Towns       int     `json:"towns"`
	Concurrency int     `json:"concurrency"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	Rate        float64 `json:"rate,omitzero"`
	// HandoffBytes and ResultBytes are the sizes of the bodies, the echo's too.
	HandoffBytes int `json:"handoffBytes"`
	ResultBytes  int `json:"resultBytes"`

	Echo Rate `json:"echo"`
	// Handoffs and Costs are of the last of Phases.
	Handoffs Rate    `json:"handoffs"`
	Phases   []Phase `json:"phases"`
	Costs
	// Ratio is the executed handoffs to the echo, OfAppend to Append, which AppendUnknown may say
	// why there is none of.
	Ratio         float64 `json:"ratio"`
	OfAppend      float64 `json:"ratioToAppend,omitzero"`
	Append        *Append `json:"append,omitzero"`
	AppendUnknown string  `json:"appendUnknown,omitzero"`
	// Wrong counts the answers, and towns at the end, that are not as predicted; Examples has some.
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
	// Executed counts the handoffs that were answered as predicted, a second.
	Executed float64 `json:"executedPerSecond"`
	// CPUMicros is the processor time of this process for one handoff, in microseconds, and
	// ServerCPUMicros the server's by its own statistics; 0 if it is not known.
	CPUMicros       float64 `json:"cpuMicrosPerHandoff"`
	ServerCPUMicros float64 `json:"serverCpuMicrosPerHandoff,omitzero"`
}

// Append is the rate of bare guarded appends of so many bytes.
type Append struct {
	Rate
	Bytes int `json:"bytes"`
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

// rateOf sorts the latencies of all that was done in some time. Its percentiles are nearest-rank.
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

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var text bytes.Buffer
	kind, whose := "joined", "this client alone"
	if r.InProcess {
		kind, whose = "private, sync "+r.Sync, "client and server, which share this process"
	}
	fmt.Fprintf(&text, "server %s (%s), world %s\n", r.Server, kind, r.World)
	fmt.Fprintf(&text, "%d towns, %d in flight over %d connections, %gs each phase; a handoff has "+
		"%d bytes, a result %d\n", r.Towns, r.Concurrency, r.Connections, r.Seconds, r.HandoffBytes,
		r.ResultBytes)
	if r.Rate > 0 {
		fmt.Fprintf(&text, "%g handoffs a second are offered; latencies count from when they are "+
			"due\n", r.Rate)
	}
	r.writeRates(&text)
	fmt.Fprintf(&text, "\nratio        %.3f executed handoffs per plain request-reply\n", r.Ratio)
	if r.Append != nil {
		fmt.Fprintf(&text, "of append    %.3f executed handoffs per bare guarded append of the same "+
			"%d bytes\n", r.OfAppend, r.Append.Bytes)
	} else {
		fmt.Fprintf(&text, "of append    unknown: %s\n", r.AppendUnknown)
	}
	fmt.Fprintf(&text, "processor    %.0f µs a handoff (%s)\n", r.CPUMicros, whose)
	if r.ServerCPUMicros > 0 && !r.InProcess {
		fmt.Fprintf(&text, "             %.0f µs a handoff (the server alone)\n", r.ServerCPUMicros)
	}
	fmt.Fprintf(&text, "wrong        %d\n", r.Wrong)
	for _, example := range r.Examples {
		fmt.Fprintf(&text, "             %s\n", example)
	}
	_, err := text.WriteTo(out)
	return err
}

func (r *Report) writeRates(text io.Writer) {
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\n\tper second\tp50 ms\tp90 ms\tp99 ms\tmax ms\t")
	row := func(name string, rate Rate) {
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", name, rate.PerSecond,
			rate.P50, rate.P90, rate.P99, rate.Max)
	}
	row("echo", r.Echo)
	if r.Append != nil {
		row("append", r.Append.Rate)
	}
	for _, phase := range r.Phases {
		row("handoffs", phase.Rate)
	}
	_ = table.Flush() // to a buffer
}

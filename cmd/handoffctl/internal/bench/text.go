package bench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"worldengine/handoff"
)

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	text := &lines{out: out}
	text.printf("%d towns, %d in flight over %d connections, %gs each phase, mix %s\n",
		r.Towns, r.Concurrency, r.Connections, r.Seconds, r.Mix)
	if r.Rate > 0 {
		text.printf("%g handoffs a second are offered; latencies count from when they are due\n",
			r.Rate)
	}
	kind := "joined"
	if r.InProcess {
		kind = "private, sync " + r.Sync
	}
	text.printf("server %s (%s), world %s\n", r.Server, kind, r.World)
	text.printf("%s %s, GOMAXPROCS %d; a handoff has %d bytes, a result %d\n\n",
		r.Go, r.Platform, r.GOMAXPROCS, r.HandoffBytes, r.ResultBytes)
	r.writeRates(text)
	text.printf("\nratio        %.3f executed handoffs per plain request-reply\n", r.Ratio)
	whose := "this client alone"
	if r.InProcess {
		whose = "client and server, which share this process"
	}
	if r.Append != nil {
		text.printf("of append    %.3f executed handoffs per bare guarded append of the same %d "+
			"bytes\n",
			r.OfAppend, r.Append.Bytes)
	} else {
		text.printf("of append    unknown: %s\n", r.AppendUnknown)
	}
	text.printf("processor    %.0f µs a handoff (%s)\n", r.CPUMicros, whose)
	if r.ServerCPUMicros > 0 && !r.InProcess {
		text.printf("             %.0f µs a handoff (the server alone)\n", r.ServerCPUMicros)
	}
	for i, p := range r.Phases {
		text.printf("phase %-6d %.0f handoffs a second, p99 %.2f ms", i+1, p.PerSecond, p.P99)
		if p.ServerCPUMicros > 0 && !r.InProcess {
			text.printf(", %.0f µs a handoff (the server alone)", p.ServerCPUMicros)
		}
		text.printf("\n")
	}
	text.printf("wrong        %d\n", r.Wrong)
	for _, example := range r.Examples {
		text.printf("             %s\n", example)
	}
	text.printf("asked again  %d after 429 or 503\n", r.Retries)
	text.printf("pauses       %.1f %% of the workers' time, to make more handoffs\n",
		100*r.PauseShare)
	for _, lag := range r.Followers {
		text.printf("follower     %s: %d log messages behind at the end, ", lag.Stream, lag.Behind)
		if lag.CaughtUpMs < 0 {
			text.printf("not caught up after %s\n", lagTimeout)
		} else {
			text.printf("caught up in %.0f ms\n", lag.CaughtUpMs)
		}
	}
	if r.FollowersUnknown != "" {
		text.printf("followers    unknown: %s\n", r.FollowersUnknown)
	}
	if p := r.Projections; p != nil {
		text.printf("projections  %.0f ms behind, at most %.0f ms and %d run events\n", p.LagP50,
			p.LagMax, p.BehindMax)
	}
	return text.err
}

func (r *Report) writeRates(text *lines) {
	table := tabwriter.NewWriter(text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tper second\tp50 ms\tp90 ms\tp99 ms\tmax ms\t")
	row := func(name string, rate Rate) {
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", name, rate.PerSecond,
			rate.P50, rate.P90, rate.P99, rate.Max)
	}
	row("echo", r.Echo)
	if r.Append != nil {
		row("append", r.Append.Rate)
	}
	row("handoffs", r.Handoffs)
	for _, status := range handoff.Statuses() {
		if n := r.Statuses[status]; n > 0 {
			fmt.Fprintf(table, "%s\t%.0f\t\t\t\t\t\n", status, n)
		}
	}
	if err := table.Flush(); err != nil && text.err == nil {
		text.err = err
	}
}

// lines writes text and keeps the first error.
type lines struct {
	out io.Writer
	err error
}

func (l *lines) printf(format string, args ...any) { _, _ = fmt.Fprintf(l, format, args...) }

// Write makes lines an io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	if l.err != nil {
		return 0, l.err
	}
	var n int
	n, l.err = l.out.Write(p)
	return n, l.err
}

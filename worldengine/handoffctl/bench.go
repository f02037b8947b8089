package handoffctl

import (
	"context"
	"errors"
	"fmt"

	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/internal/serve/embedded"
	"worldengine/worldengine/internal/serve/server"
	"worldengine/worldengine/internal/serve/tempserver"
	"worldengine/worldengine/internal/tool/bench"
)

type benchCommand struct {
	bench.Config `embed:""`
}

func (c *benchCommand) Run(ctx context.Context, a *app) (err error) {
	if !c.Join {
		config := server.Config{Embedded: embedded.Config{Sync: c.Sync}}
		config.Worlds.Names = c.WorldNames(a.flags.World)
		srv, end, err := tempserver.Start(ctx, config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		a.flags.Server, a.flags.Connection = srv.URL(), natsconn.Options{}
	}
	report, err := bench.Run(ctx, &c.Config, bench.Target{
		World: a.flags.World, Timeout: a.flags.Timeout, Dial: a.dial, DialStreams: a.dialStreams,
	})
	if err != nil {
		return err
	}
	return a.conclude(report, func(t table) { t.bench(report) },
		failedIf(report.Wrong > 0, "wrong answers: %d", report.Wrong))
}

// bench writes the report for people.
func (t table) bench(r *bench.Report) {
	kind, whose := "joined", "this client alone"
	if r.InProcess {
		kind, whose = "private, sync "+r.Sync, "client and server, which share this process"
	}
	t.linef("server %s (%s), world %s", r.Server, kind, r.World)
	t.linef("%d towns, %d in flight over %d connections, %gs each phase; a handoff has %d bytes, "+
		"a result %d", r.Towns, r.Concurrency, r.Connections, r.Seconds, r.HandoffBytes, r.ResultBytes)
	t.lineIf(r.Rate > 0, "%g handoffs a second are offered; latencies count from when they are due", r.Rate)
	t.linef("\nPHASE\tPER SECOND\tP50 MS\tP90 MS\tP99 MS\tMAX MS")
	r.Rows(func(name string, rate bench.Rate) {
		t.linef("%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f", name, rate.PerSecond, rate.P50, rate.P90, rate.P99,
			rate.Max)
	})
	ofAppend := "unknown: " + r.AppendUnknown
	if r.Append != nil {
		ofAppend = fmt.Sprintf("%.3f executed handoffs per bare guarded append of the same %d bytes",
			r.OfAppend, r.Append.Bytes)
	}
	t.linef("")
	t.linef("ratio\t%.3f executed handoffs per plain request-reply", r.Ratio)
	t.linef("of append\t%s", ofAppend)
	if w := r.Worlds; w != nil {
		t.linef("worlds\t%.3f executed handoffs in %d worlds per one in one world, by the medians of the phases",
			w.OfOne, w.Count)
		t.lineIf(w.FloodedP99 > 0, "fairness\t%.2f times the calm p99 while another world is flooded", w.FloodedP99)
	}
	t.linef("processor\t%.0f µs a handoff (%s)", r.CPUMicros, whose)
	t.lineIf(r.ServerCPUMicros > 0 && !r.InProcess, "\t%.0f µs a handoff (the server alone)", r.ServerCPUMicros)
	t.linef("wrong\t%d", r.Wrong)
	for _, example := range r.Examples {
		t.linef("\t%s", example)
	}
}

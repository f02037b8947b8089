// Package metrics makes the metrics of a server for Prometheus, in its own registry: counters of
// answers, and one collector for the server's own counts.
//
// No metric has a label with a town, an actor or a run, so that their number does not grow with a
// world.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"worldengine/handoff"
	"worldengine/worldengine/apply"
	"worldengine/worldengine/wire"
)

// Spec declares a metric. cmd/internal/gen writes the table of docs/operators.md.
type Spec struct {
	Name, Help string
	Labels     []string

	desc *prometheus.Desc
}

var specs []*Spec

// Specs returns the declarations of all metrics.
func Specs() []*Spec { return specs }

// declare declares a metric. Only the metrics about Go and the process have another first word.
func declare(name, help string, labels ...string) *Spec {
	name = "handoffd_" + name
	spec := &Spec{name, help, labels, prometheus.NewDesc(name, help, labels, nil)}
	specs = append(specs, spec)
	return spec
}

// buckets range from half a millisecond to about half a minute, which a game may need.
var buckets = prometheus.ExponentialBuckets(0.0005, 3, 11)

func (s *Spec) histogram(in *prometheus.Registry) *prometheus.HistogramVec {
	return promauto.With(in).NewHistogramVec(prometheus.HistogramOpts{
		Name: s.Name, Help: s.Help, Buckets: buckets}, s.Labels)
}

func (s *Spec) counter(in *prometheus.Registry) *prometheus.CounterVec {
	return promauto.With(in).NewCounterVec(
		prometheus.CounterOpts{Name: s.Name, Help: s.Help}, s.Labels)
}

// answered is the code of a request without an error.
const answered = "OK"

// Metrics are the metrics of one server. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	handoffs *prometheus.HistogramVec
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	commits  prometheus.Observer
	attempts *prometheus.CounterVec
	applied  *prometheus.HistogramVec
}

// The metrics that are updated with each event.
var (
	handoffDuration = declare("handoff_duration_seconds",
		"Time from the arrival of a handoff to its result, by the status of the result.", "status")
	requestsTotal = declare("requests_total",
		"Requests that were answered, by verb and by the code of the error; OK if there is none.",
		"verb", "code")
	requestDuration = declare("request_duration_seconds",
		"Time from the arrival of a request to its answer, by verb.", "verb")
	commitDuration = declare("commit_duration_seconds",
		"Time of one attempt to append to the log, with the wait for its turn.")
	attemptsTotal = declare("apply_attempts_total",
		"Attempts to have a command applied outside the engine, by binding and by their outcome: "+
			"applied, or the reason code of the failure.", "binding", "outcome")
	applyDuration = declare("apply_duration_seconds",
		"Time that one attempt to have a command applied outside the engine took, by binding.",
		"binding")
	buildInfo = declare("build_info", "1, with the version of the program.", "version")
)

// New returns metrics without counts, of a program version.
func New(version string) *Metrics {
	in := prometheus.NewRegistry()
	in.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &Metrics{
		registry: in, handoffs: handoffDuration.histogram(in), requests: requestsTotal.counter(in),
		took: requestDuration.histogram(in), attempts: attemptsTotal.counter(in),
		commits: commitDuration.histogram(in).WithLabelValues(), applied: applyDuration.histogram(in),
	}
	promauto.With(in).NewGaugeVec(prometheus.GaugeOpts{Name: buildInfo.Name, Help: buildInfo.Help},
		buildInfo.Labels).WithLabelValues(version).Set(1)
	for _, status := range handoff.Statuses() {
		m.handoffs.WithLabelValues(string(status))
	}
	// Prometheus takes a counter that begins above 0 for no increase, so the counters of its alert
	// rules begin at 0.
	for _, reason := range []handoff.ReasonCode{
		apply.ReasonPluginRejected, apply.ReasonPluginTimeout, apply.ReasonPluginUnavailable,
	} {
		m.attempts.WithLabelValues(string(apply.Plugin), string(reason))
	}
	for _, reason := range []handoff.ReasonCode{
		apply.ReasonPluginUnavailable, apply.ReasonRCONInDoubt,
	} {
		m.attempts.WithLabelValues(string(apply.RCON), string(reason))
	}
	for _, verb := range wire.Verbs() {
		for _, code := range []wire.Code{wire.CodeInternal, wire.CodeLogUnavailable} {
			m.requests.WithLabelValues(string(verb), string(code))
		}
	}
	return m
}

// Attempt counts an attempt to apply a command by a town's binding, and its duration.
func (m *Metrics) Attempt(by apply.Binding, ended apply.Result, took time.Duration) {
	outcome := string(apply.Applied)
	if !ended.Applied {
		outcome = string(ended.Failed.Reason)
	}
	m.attempts.WithLabelValues(string(by), outcome).Inc()
	m.applied.WithLabelValues(string(by)).Observe(took.Seconds())
}

// Handoff counts a result, and its handoff's duration.
func (m *Metrics) Handoff(status handoff.Status, took time.Duration) {
	m.handoffs.WithLabelValues(string(status)).Observe(took.Seconds())
}

// Request counts an answer, and its request's duration. code is empty if the answer is no error.
func (m *Metrics) Request(verb wire.Verb, code wire.Code, took time.Duration) {
	if code == "" {
		code = answered
	}
	m.requests.WithLabelValues(string(verb), string(code)).Inc()
	m.took.WithLabelValues(string(verb)).Observe(took.Seconds())
}

// Commit counts an attempt to append to the log, and its duration: see commitlog.Log.Committed.
func (m *Metrics) Commit(took time.Duration) { m.commits.Observe(took.Seconds()) }

// Watch adds the metrics of the server's own counts, which sample reads for each scrape. It is called
// once.
func (m *Metrics) Watch(sample func(context.Context) Sample) {
	m.registry.MustRegister(&collector{sample})
}

// Gatherer returns the registry.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Handler returns the handler of GET /metrics.
func (m *Metrics) Handler(logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 2, Timeout: 10 * time.Second,
	})
}

// Package metrics makes the metrics of a server for Prometheus, in its own registry: counters of
// answers, and one collector for the server's own counts.
//
// A metric about a world has the label world, whose values are the worlds of the server and never come
// from a request. No metric has a label with a town, an actor or a run. So the number of series grows
// with the worlds of the server, and not with the contents of a world.
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
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// Spec declares a metric. worldengine/internal/gen writes the table of docs/operators.md.
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

// worldLabel is the label with the name of a world.
const worldLabel = "world"

// declareWorld declares a metric that each world has. Its first label is worldLabel.
func declareWorld(name, help string, labels ...string) *Spec {
	return declare(name, help, append([]string{worldLabel}, labels...)...)
}

// buckets range from half a millisecond to about half a minute, which a game may need.
var buckets = prometheus.ExponentialBuckets(0.0005, 3, 11)

func (m *Metrics) histogram(s *Spec) *prometheus.HistogramVec {
	vec := promauto.With(m.registry).NewHistogramVec(prometheus.HistogramOpts{
		Name: s.Name, Help: s.Help, Buckets: buckets}, s.Labels)
	m.vectors = append(m.vectors, vec.MetricVec)
	return vec
}

func (m *Metrics) counter(s *Spec) *prometheus.CounterVec {
	vec := promauto.With(m.registry).NewCounterVec(
		prometheus.CounterOpts{Name: s.Name, Help: s.Help}, s.Labels)
	m.vectors = append(m.vectors, vec.MetricVec)
	return vec
}

// codeOK is the code of a request without an error.
const codeOK = "OK"

// Metrics are the metrics of one server. They are safe for concurrent use.
type Metrics struct {
	registry          *prometheus.Registry
	vectors           []*prometheus.MetricVec // all that follow
	requests          *prometheus.CounterVec
	took              *prometheus.HistogramVec // of the requests of all worlds
	handoffs, commits *prometheus.HistogramVec
	attempts          *prometheus.CounterVec
	applied           *prometheus.HistogramVec
}

// WorldMetrics counts the events of one world. It is safe for concurrent use.
type WorldMetrics struct {
	requests, attempts      *prometheus.CounterVec
	took, handoffs, applied prometheus.ObserverVec
	commits                 prometheus.Observer
}

// The metrics that are updated with each event.
var (
	handoffDuration = declareWorld("handoff_duration_seconds",
		"Time from the arrival of a handoff to its result, by the status of the result.", "status")
	requestsTotal = declareWorld("requests_total",
		"Requests that were answered, by verb and by the code of the error; OK if there is none.",
		"verb", "code")
	requestDuration = declare("request_duration_seconds",
		"Time from the arrival of a request to its answer, by verb.", "verb")
	commitDuration = declareWorld("commit_duration_seconds",
		"Time of one attempt to append to the log, with the wait for its turn.")
	attemptsTotal = declareWorld("apply_attempts_total",
		"Attempts to have a command applied outside the engine, by binding and by their outcome: "+
			"applied, or the reason code of the failure.", "binding", "outcome")
	applyDuration = declareWorld("apply_duration_seconds",
		"Time that one attempt to have a command applied outside the engine took, by binding.",
		"binding")
	buildInfo = declare("build_info", "1, with the version of the program.", "version")
)

// New returns metrics without counts, of a program version.
func New(version string) *Metrics {
	in := prometheus.NewRegistry()
	in.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := &Metrics{registry: in}
	m.requests, m.took = m.counter(requestsTotal), m.histogram(requestDuration)
	m.handoffs, m.commits = m.histogram(handoffDuration), m.histogram(commitDuration)
	m.attempts, m.applied = m.counter(attemptsTotal), m.histogram(applyDuration)
	promauto.With(in).NewGaugeVec(prometheus.GaugeOpts{Name: buildInfo.Name, Help: buildInfo.Help},
		buildInfo.Labels).WithLabelValues(version).Set(1)
	return m
}

// World returns the counters of a world, which are 0 at first.
func (m *Metrics) World(name string) *WorldMetrics {
	labels := prometheus.Labels{worldLabel: name}
	w := &WorldMetrics{
		requests: m.requests.MustCurryWith(labels), attempts: m.attempts.MustCurryWith(labels), took: m.took,
		handoffs: m.handoffs.MustCurryWith(labels), applied: m.applied.MustCurryWith(labels),
		commits: m.commits.With(labels),
	}
	for _, status := range handoff.Statuses() {
		w.handoffs.WithLabelValues(string(status))
	}
	// Prometheus sees no increase in a counter that begins above 0, so the counters of its alert
	// rules begin at 0.
	for _, binding := range apply.Bindings() {
		for _, reason := range binding.Spec().Failures {
			w.attempts.WithLabelValues(string(binding), string(reason))
		}
	}
	for _, verb := range protocol.Verbs() {
		for _, code := range []wire.Code{wire.CodeInternal, wire.CodeLogUnavailable} {
			w.requests.WithLabelValues(string(verb), string(code))
		}
	}
	return w
}

// Remove removes the counters of a world that the server no longer has. Nil has none.
func (m *Metrics) Remove(world string) {
	if m == nil {
		return
	}
	for _, vec := range m.vectors {
		vec.DeletePartialMatch(prometheus.Labels{worldLabel: world})
	}
}

// Attempt counts an attempt to apply a command by a town's binding, and its duration.
func (w *WorldMetrics) Attempt(by apply.Binding, ended apply.AttemptResult, took time.Duration) {
	outcome := string(apply.Applied)
	if !ended.Applied {
		outcome = string(ended.Failure.Reason)
	}
	w.attempts.WithLabelValues(string(by), outcome).Inc()
	w.applied.WithLabelValues(string(by)).Observe(took.Seconds())
}

// Handoff counts a result, and its handoff's duration.
func (w *WorldMetrics) Handoff(status handoff.Status, took time.Duration) {
	w.handoffs.WithLabelValues(string(status)).Observe(took.Seconds())
}

// Request counts an answer, and its request's duration. code is empty if the answer is no error.
func (w *WorldMetrics) Request(verb wire.Verb, code wire.Code, took time.Duration) {
	if code == "" {
		code = codeOK
	}
	w.requests.WithLabelValues(string(verb), string(code)).Inc()
	w.took.WithLabelValues(string(verb)).Observe(took.Seconds())
}

// AppendTried counts one try to append to the log, and its duration: see commitlog.Log.OnAppendTried.
func (w *WorldMetrics) AppendTried(took time.Duration) { w.commits.Observe(took.Seconds()) }

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

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Spec declares a metric. cmd/internal/gen writes the table of docs/operators.md.
type Spec struct {
	Name, Help string
	Labels     []string

	desc     *prometheus.Desc
	observed bool // as it happens, and not by the collector
}

var specs []*Spec

// Specs returns the declarations of all metrics.
func Specs() []*Spec { return specs }

func declare(name, help string, labels ...string) *Spec {
	name = namespace + "_" + name
	spec := &Spec{Name: name, Help: help, Labels: labels,
		desc: prometheus.NewDesc(name, help, labels, nil)}
	specs = append(specs, spec)
	return spec
}

// observe declares a metric that the collector does not make.
func observe(name, help string, labels ...string) *Spec {
	spec := declare(name, help, labels...)
	spec.observed = true
	return spec
}

func (s *Spec) counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: s.Name, Help: s.Help}, s.Labels)
}

// buckets range from half a millisecond to about half a minute, which a game may need.
var buckets = prometheus.ExponentialBuckets(0.0005, 3, 11)

func (s *Spec) histogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: s.Name, Help: s.Help, Buckets: buckets}, s.Labels)
}

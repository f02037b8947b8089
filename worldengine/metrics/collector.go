package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"worldengine/runevents"
	"worldengine/worldengine/messages"
)

// Sample has the values of one scrape.
type Sample struct {
	// Serving is false while the server stands by: then Stats has Indexed alone.
	Serving  bool
	Stats    messages.Stats
	Overload messages.Overload
	// Streams has the state of the world's streams by the last part of their names, such as LOG,
	// without the streams that NATS does not report in time.
	Streams map[string]Stream
	// Embedded is nil if NATS is another process, and Webhooks without a webhook.
	Embedded *Embedded
	Webhooks *Webhooks
}

// Stream is the state of one stream.
type Stream struct{ Messages, Bytes, LastSequence uint64 }

// Embedded has the free bytes of an embedded NATS's disk, its connections, and how many it closed
// because they did not read.
type Embedded struct {
	DiskFree      uint64
	Connections   int
	SlowConsumers int64
}

// Webhooks has how many messages webhooks took, and how many were lost.
type Webhooks struct{ Sent, Lost int64 }

// scrapeTimeout bounds one scrape's wait for NATS.
const scrapeTimeout = 3 * time.Second

// collector makes metrics of a sample for each scrape.
type collector struct {
	sample func(context.Context) Sample
}

// The metrics that the collector makes.
var (
	handoffsTotal = declare("handoffs_total", "Results of handoffs since the start, by status.",
		"status")
	writing      = declare("writer", "1 while this server serves the world, 0 while it stands by.")
	waiting      = declare("requests_waiting", "Requests that wait for their town or are in hand.")
	held         = declare("requests_held", "Requests between their arrival and their answer.")
	heldBytes    = declare("requests_held_bytes", "Part of --max-held that the requests that are held take.")
	refusedTotal = declare("requests_refused_total", "Requests that got 429, by the bound that was full.",
		"reason")
	strayTotal      = declare("stray_replies_total", "Requests that were dropped because their reply subject is no inbox.")
	applying        = declare("commands_applying", "Commands that are being applied outside the engine.")
	indexedSeq      = declare("indexed_sequence", "Log sequence up to which the index is complete.")
	indexEnd        = declare("index_building_end", "Log sequence that the index has to reach until it is built; 0 if it is.")
	busSeq          = declare("bus_sequence", "Log sequence up to which the bus has the run events; only with --bus.")
	logLast         = declare("log_last_sequence", "Sequence of the last message of the log.")
	streamBytes     = declare("stream_bytes", "Bytes that a stream of the world has.", "stream")
	streamMessages  = declare("stream_messages", "Messages that a stream of the world has.", "stream")
	deadLetters     = declare("dead_letters", "Messages that could not be brought onto the bus.")
	alertsTotal     = declare("alerts_total", "Alerts that this server has raised since its start, by code.", "code")
	alertsLostTotal = declare("alerts_lost_total", "Alerts that did not come into the stream of alerts.")
	alertsMoreTotal = declare("alerts_more_total", "Events counted without an alert of their own, by its code.", "code")
	commitsMissed   = declare("commits_missed_total", "Commits of this server that were not published live; event.list has them.")
	projectorLag    = declare("projector_lag_seconds", "How far projections are behind what others appended; not with --no-projector.")
	worldPaused     = declare("world_paused", "1 while the world is paused.")
	townsPaused     = declare("towns_paused", "Towns that are paused by themselves, as far as this server knows.")
	pluginsAbsent   = declare("plugins_absent", "Towns that had no plugin or console when this server last asked for one.")
	approvals       = declare("approvals_waiting", "Proposals that wait for a person's approval.")
	approvalAge     = declare("approval_oldest_seconds", "Time that the oldest of them has waited; 0 if there is none.")
	storageFull     = declare("storage_full", "1 while nothing is stored because the disk is full or failed.")
	diskFree        = declare("disk_free_bytes", "Free bytes of the disk of the data directory.")
	webhookTotal    = declare("webhook_messages_total", "Messages to webhooks, by their outcome: sent, or lost; only with --webhook.", "outcome")
	natsConnections = declare("nats_connections", "Connections to the embedded NATS.")
	natsSlow        = declare("nats_slow_consumers_total", "Connections that the embedded NATS closed because they did not read.")
)

// Describe implements prometheus.Collector. It names no metric: which there are depends on the sample.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// scrape takes the metrics of one scrape.
type scrape chan<- prometheus.Metric

func (s scrape) gauge(m *Spec, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, labels...)
}

func (s scrape) counter(m *Spec, value int64, labels ...string) {
	s <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(value), labels...)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	sample, to := c.sample(ctx), scrape(metrics)
	to.gauge(writing, one(sample.Serving))
	to.gauge(indexedSeq, float64(sample.Stats.Indexed))
	// On a standby they are 0, so that the first alert of a takeover is an increase.
	for _, alert := range runevents.Alerts() {
		to.counter(alertsTotal, sample.Stats.Alerts[alert.Code], string(alert.Code))
	}
	if sample.Serving {
		to.served(&sample.Stats, &sample.Overload)
	}
	if embedded := sample.Embedded; embedded != nil {
		to.gauge(diskFree, float64(embedded.DiskFree))
		to.gauge(natsConnections, float64(embedded.Connections))
		to.counter(natsSlow, embedded.SlowConsumers)
	}
	if hooks := sample.Webhooks; hooks != nil {
		to.counter(webhookTotal, hooks.Sent, "sent")
		to.counter(webhookTotal, hooks.Lost, "lost")
	}
	for name, stream := range sample.Streams {
		to.gauge(streamBytes, float64(stream.Bytes), name)
		to.gauge(streamMessages, float64(stream.Messages), name)
		switch name {
		case "LOG":
			to.gauge(logLast, float64(stream.LastSequence))
		case "DEADLETTER":
			to.gauge(deadLetters, float64(stream.Messages))
		}
	}
}

// served makes the metrics of a serving server.
func (s scrape) served(stats *messages.Stats, overload *messages.Overload) {
	s.gauge(indexEnd, float64(stats.IndexEnd))
	for status, n := range stats.Results {
		s.counter(handoffsTotal, n, string(status))
	}
	s.counter(alertsLostTotal, stats.AlertsLost)
	for code, n := range stats.AlertsMore {
		s.counter(alertsMoreTotal, n, string(code))
	}
	s.counter(commitsMissed, stats.CommitsMissed)
	s.gauge(waiting, float64(stats.Waiting))
	s.gauge(applying, float64(stats.Applying))
	if stats.BusPublished != nil {
		s.gauge(busSeq, float64(*stats.BusPublished))
	}
	s.gauge(worldPaused, one(stats.WorldPaused))
	s.gauge(townsPaused, float64(stats.TownsPaused))
	s.gauge(pluginsAbsent, float64(stats.PluginsAbsent))
	s.gauge(approvals, float64(stats.ApprovalsWaiting))
	s.gauge(approvalAge, float64(stats.ApprovalOldestMs)/1000)
	s.gauge(storageFull, one(stats.StorageFull != ""))
	if stats.ProjectorLagMs != nil {
		s.gauge(projectorLag, float64(*stats.ProjectorLagMs)/1000)
	}
	s.gauge(held, float64(overload.Held))
	s.gauge(heldBytes, float64(overload.HeldBytes))
	s.counter(strayTotal, overload.StrayReplies)
	for reason, n := range overload.Refused {
		s.counter(refusedTotal, n, reason)
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

package metrics

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/messages"
)

// Sample has the values of one scrape.
type Sample struct {
	// Worlds are the worlds that the server serves or stands by for.
	Worlds []WorldSample
	// StrayReplies counts the requests of all worlds that were dropped because of their reply subject.
	StrayReplies int64
	// Embedded is nil if NATS is another process, and Webhooks without a webhook.
	Embedded *Embedded
	Webhooks *Webhooks
}

// WorldSample has the values of one world.
type WorldSample struct {
	World string
	// Serving is false while the server stands by: then Stats has Indexed alone.
	Serving  bool
	Stats    messages.Stats
	Overload messages.Overload
	// Streams has the state of the world's streams by the last part of their names, such as LOG,
	// without the streams that NATS does not report in time.
	Streams map[string]Stream
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

// Webhooks has how many messages were delivered to webhooks, and how many were lost.
type Webhooks struct{ Sent, Lost int64 }

// scrapeTimeout bounds one scrape's wait for NATS.
const scrapeTimeout = 3 * time.Second

// collector makes metrics of a sample for each scrape.
type collector struct {
	sample func(context.Context) Sample
}

// The metrics that the collector makes.
var (
	handoffsTotal = declareWorld("handoffs_total", "Results of handoffs since the start, by status.",
		"status")
	worldsCount  = declare("worlds", "Worlds of this server, by their state: served, or not.", "state")
	writing      = declareWorld("writer", "1 while this server serves the world, 0 while it does not.")
	waiting      = declareWorld("requests_waiting", "Requests that wait for their town or are in hand.")
	held         = declareWorld("requests_held", "Requests between their arrival and their answer.")
	heldBytes    = declareWorld("requests_held_bytes", "Part of --max-held that the requests that are held take.")
	refusedTotal = declareWorld("requests_refused_total", "Requests that got 429, by the bound that was full.",
		"reason")
	strayTotal      = declare("stray_replies_total", "Requests that were dropped because their reply subject is no inbox.")
	applying        = declareWorld("commands_applying", "Commands that are being applied outside the engine.")
	indexedSeq      = declareWorld("indexed_sequence", "Log sequence up to which the index is complete.")
	indexEnd        = declareWorld("index_building_end", "Log sequence that the index has to reach until it is built; 0 if it is.")
	busSeq          = declareWorld("bus_sequence", "Log sequence up to which the bus has the run events; only with --bus.")
	logLast         = declareWorld("log_last_sequence", "Sequence of the last message of the log.")
	streamBytes     = declareWorld("stream_bytes", "Bytes that a stream of the world has.", "stream")
	streamMessages  = declareWorld("stream_messages", "Messages that a stream of the world has.", "stream")
	deadLetters     = declareWorld("dead_letters", "Messages that could not be brought onto the bus.")
	alertsTotal     = declareWorld("alerts_total", "Alerts that this server has raised since its start, by code.", "code")
	alertsLostTotal = declareWorld("alerts_lost_total", "Alerts that did not come into the stream of alerts.")
	alertsMoreTotal = declareWorld("alerts_more_total", "Events counted without an alert of their own, by its code.", "code")
	commitsMissed   = declareWorld("commits_missed_total", "Commits of this server that were not published live; event.list has them.")
	projectorLag    = declareWorld("projector_lag_seconds", "How far projections are behind what others appended; not with --no-projector.")
	worldPaused     = declareWorld("world_paused", "1 while the world is paused.")
	townsPaused     = declareWorld("towns_paused", "Towns that are paused by themselves, as far as this server knows.")
	pluginsAbsent   = declareWorld("plugins_absent", "Towns that had no plugin or console when this server last asked for one.")
	approvals       = declareWorld("approvals_waiting", "Proposals that wait for a person's approval.")
	approvalAge     = declareWorld("approval_oldest_seconds", "Time that the oldest of them has waited; 0 if there is none.")
	storageFull     = declareWorld("storage_full", "1 while nothing is stored because the disk is full or failed.")
	diskFree        = declare("disk_free_bytes", "Free bytes of the disk of the data directory.")
	webhookTotal    = declare("webhook_messages_total", "Messages to webhooks, by their outcome: sent, or lost; only with --webhook.", "outcome")
	natsConnections = declare("nats_connections", "Connections to the embedded NATS.")
	natsSlow        = declare("nats_slow_consumers_total", "Connections that the embedded NATS closed because they did not read.")
)

// Describe implements prometheus.Collector. It names no metric: which there are depends on the sample.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// scrape collects the metrics of one scrape. labels come before the own labels of each metric.
type scrape struct {
	to     chan<- prometheus.Metric
	labels []string
}

func (s scrape) gauge(m *Spec, value float64, labels ...string) {
	s.metric(m, prometheus.GaugeValue, value, labels)
}

func (s scrape) counter(m *Spec, value int64, labels ...string) {
	s.metric(m, prometheus.CounterValue, float64(value), labels)
}

func (s scrape) metric(m *Spec, kind prometheus.ValueType, value float64, labels []string) {
	s.to <- prometheus.MustNewConstMetric(m.desc, kind, value, slices.Concat(s.labels, labels)...)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	sample, served := c.sample(ctx), 0
	for i := range sample.Worlds {
		world := &sample.Worlds[i]
		scrape{metrics, []string{world.World}}.world(world)
		if world.Serving {
			served++
		}
	}
	to := scrape{to: metrics}
	to.gauge(worldsCount, float64(served), "served")
	to.gauge(worldsCount, float64(len(sample.Worlds)-served), "not served")
	to.counter(strayTotal, sample.StrayReplies)
	if embedded := sample.Embedded; embedded != nil {
		to.gauge(diskFree, float64(embedded.DiskFree))
		to.gauge(natsConnections, float64(embedded.Connections))
		to.counter(natsSlow, embedded.SlowConsumers)
	}
	if hooks := sample.Webhooks; hooks != nil {
		to.counter(webhookTotal, hooks.Sent, "sent")
		to.counter(webhookTotal, hooks.Lost, "lost")
	}
}

// world makes the metrics of a world.
func (s scrape) world(w *WorldSample) {
	s.gauge(writing, boolValue(w.Serving))
	s.gauge(indexedSeq, float64(w.Stats.Indexed))
	// On a standby they are 0, so that the first alert of a takeover is an increase.
	for _, alert := range protocol.Alerts() {
		s.counter(alertsTotal, w.Stats.Alerts[alert.Code], string(alert.Code))
	}
	if w.Serving {
		s.served(&w.Stats, &w.Overload)
	}
	for name, stream := range w.Streams {
		s.gauge(streamBytes, float64(stream.Bytes), name)
		s.gauge(streamMessages, float64(stream.Messages), name)
		switch name {
		case "LOG":
			s.gauge(logLast, float64(stream.LastSequence))
		case "DEADLETTER":
			s.gauge(deadLetters, float64(stream.Messages))
		}
	}
}

// served makes the metrics of a world that is served.
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
	s.gauge(waiting, float64(stats.Unfinished))
	s.gauge(applying, float64(stats.Applying))
	if stats.BusPublished != nil {
		s.gauge(busSeq, float64(*stats.BusPublished))
	}
	s.gauge(worldPaused, boolValue(stats.WorldPaused))
	s.gauge(townsPaused, float64(stats.TownsPaused))
	s.gauge(pluginsAbsent, float64(stats.PluginsAbsent))
	s.gauge(approvals, float64(stats.ApprovalsWaiting))
	s.gauge(approvalAge, float64(stats.ApprovalOldestMs)/1000)
	s.gauge(storageFull, boolValue(stats.StorageFull != ""))
	if stats.ProjectorLagMs != nil {
		s.gauge(projectorLag, float64(*stats.ProjectorLagMs)/1000)
	}
	s.gauge(held, float64(overload.Held))
	s.gauge(heldBytes, float64(overload.HeldBytes))
	for reason, n := range overload.Refused {
		s.counter(refusedTotal, n, reason)
	}
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

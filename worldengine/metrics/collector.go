package metrics

import (
	"context"
	"time"

	"worldengine/worldengine/messages"

	"github.com/prometheus/client_golang/prometheus"
)

// Source provides the collector's values at each scrape.
type Source struct {
	// Serving returns the statistics of the engine and the service; false while the server stands
	// by: then they have Indexed alone.
	Serving func() (messages.Stats, messages.Overload, bool)
	// Streams returns the state of the world's streams by the last part of their names, such as
	// LOG, without those that NATS does not report within ctx.
	Streams func(ctx context.Context) map[string]Stream
	// Disk returns the free bytes; nil if the disk is another process's.
	Disk func() uint64
	// NATS returns an embedded NATS's connections, and how many were closed because they did not
	// read; nil if NATS is another process.
	NATS func() (connections int, slowConsumers int64)
	// Webhooks returns how many messages webhooks took, and how many were lost; nil without one.
	Webhooks func() (sent, lost int64)
}

// Stream is the state of one stream.
type Stream struct{ Messages, Bytes, LastSequence uint64 }

// scrapeTimeout bounds one scrape's wait for NATS.
const scrapeTimeout = 3 * time.Second

type collector struct{ source Source }

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

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, spec := range specs {
		if !spec.observed {
			descs <- spec.desc
		}
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(m *Spec, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, labels...)
	}
	counter := func(m *Spec, value int64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue,
			float64(value), labels...)
	}
	stats, overload, serving := c.source.Serving()
	gauge(writing, one(serving))
	gauge(indexedSeq, float64(stats.Indexed))
	if serving {
		served(gauge, counter, &stats, &overload)
	}
	if c.source.Disk != nil {
		gauge(diskFree, float64(c.source.Disk()))
	}
	if c.source.NATS != nil {
		connections, slow := c.source.NATS()
		gauge(natsConnections, float64(connections))
		counter(natsSlow, slow)
	}
	if c.source.Webhooks != nil {
		sent, lost := c.source.Webhooks()
		counter(webhookTotal, sent, "sent")
		counter(webhookTotal, lost, "lost")
	}
	c.streams(gauge)
}

// served makes the metrics of a serving server.
func served(
	gauge func(*Spec, float64, ...string), counter func(*Spec, int64, ...string),
	stats *messages.Stats, overload *messages.Overload,
) {
	gauge(indexEnd, float64(stats.IndexEnd))
	for status, n := range stats.Results {
		counter(handoffsTotal, n, string(status))
	}
	for code, n := range stats.Alerts {
		counter(alertsTotal, n, string(code))
	}
	counter(alertsLostTotal, stats.AlertsLost)
	for code, n := range stats.AlertsMore {
		counter(alertsMoreTotal, n, string(code))
	}
	counter(commitsMissed, stats.CommitsMissed)
	gauge(waiting, float64(stats.Waiting))
	gauge(applying, float64(stats.Applying))
	if stats.BusPublished != nil {
		gauge(busSeq, float64(*stats.BusPublished))
	}
	gauge(worldPaused, one(stats.WorldPaused))
	gauge(townsPaused, float64(stats.TownsPaused))
	gauge(pluginsAbsent, float64(stats.PluginsAbsent))
	gauge(approvals, float64(stats.ApprovalsWaiting))
	gauge(approvalAge, float64(stats.ApprovalOldestMs)/1000)
	gauge(storageFull, one(stats.StorageFull != ""))
	if stats.ProjectorLagMs != nil {
		gauge(projectorLag, float64(*stats.ProjectorLagMs)/1000)
	}
	gauge(held, float64(overload.Held))
	gauge(heldBytes, float64(overload.HeldBytes))
	counter(strayTotal, overload.StrayReplies)
	for reason, n := range overload.Refused {
		counter(refusedTotal, n, reason)
	}
}

func (c *collector) streams(gauge func(*Spec, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	for name, stream := range c.source.Streams(ctx) {
		gauge(streamBytes, float64(stream.Bytes), name)
		gauge(streamMessages, float64(stream.Messages), name)
		switch name {
		case "LOG":
			gauge(logLast, float64(stream.LastSequence))
		case "DEADLETTER":
			gauge(deadLetters, float64(stream.Messages))
		}
	}
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"worldengine/worldengine"
	"worldengine/worldengine/service"
)

// Source is what the collector reads at each scrape.
type Source struct {
	// Stats are those of the engine, and Overload those of the service.
	Stats    func() worldengine.Stats
	Overload func() service.Overload
	// Streams returns the state of the world's streams by the last part of their names, such as
	// LOG; those that NATS says nothing about within ctx are left out.
	Streams func(ctx context.Context) map[string]Stream
	// Disk returns how many bytes are free; nil where the disk is that of another process.
	Disk func() uint64
	// NATS returns how many connections an embedded NATS has, and how many of them were closed
	// because they did not read; nil where it is another process.
	NATS func() (connections int, slowConsumers int64)
}

// Stream is the state of one stream.
type Stream struct{ Messages, Bytes, LastSequence uint64 }

// scrapeTimeout bounds what one scrape waits for NATS.
const scrapeTimeout = 3 * time.Second

type collector struct{ source Source }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

// The metrics that the collector makes.
var (
	handoffsTotal = desc("handoffs_total", "Results of handoffs since the start, by status.",
		"status")
	waiting   = desc("requests_waiting", "Requests that wait for their town or are in hand.")
	held      = desc("requests_held", "Requests between their arrival and their answer.")
	heldBytes = desc("requests_held_bytes",
		"What the requests that are held count for of --max-held.")
	refusedTotal = desc("requests_refused_total", "Requests that got 429, by what was full.",
		"reason")
	strayTotal = desc("stray_replies_total",
		"Requests that were dropped because their reply subject is no inbox.")
	applying    = desc("commands_applying", "Commands that are being applied outside the engine.")
	followerSeq = desc("follower_sequence",
		"Log sequence up to which a derived stream is complete.", "stream")
	logLast        = desc("log_last_sequence", "Sequence of the last message of the log.")
	streamBytes    = desc("stream_bytes", "Bytes that a stream of the world has.", "stream")
	streamMessages = desc("stream_messages", "Messages that a stream of the world has.", "stream")
	deadLetters    = desc("dead_letters", "Messages that could not be brought onto the bus.")
	alertsTotal    = desc("alerts_total",
		"Alerts that this server has raised since its start, by code.", "code")
	alertsLostTotal = desc("alerts_lost_total",
		"Alerts that did not come into the stream of alerts.")
	projectorLag = desc("projector_lag_seconds",
		"How far projections are behind what others appended; not with --no-projector.")
	worldPaused = desc("world_paused", "1 while the world is paused.")
	townsPaused = desc("towns_paused",
		"Towns that are paused by themselves, as far as this server knows.")
	pluginsAbsent = desc("plugins_absent",
		"Towns that had no plugin when this server last asked for one.")
	storageFull = desc("storage_full",
		"1 while nothing is stored because the disk is full or failed.")
	diskFree        = desc("disk_free_bytes", "Free bytes of the disk of the data directory.")
	natsConnections = desc("nats_connections", "Connections to the embedded NATS.")
	natsSlow        = desc("nats_slow_consumers_total",
		"Connections that the embedded NATS closed because they did not read.")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		handoffsTotal, waiting, held, heldBytes, refusedTotal, strayTotal, applying,
		followerSeq, logLast,
		streamBytes, streamMessages, deadLetters, alertsTotal, alertsLostTotal,
		projectorLag, worldPaused,
		townsPaused, pluginsAbsent, storageFull, diskFree, natsConnections, natsSlow,
	} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value int64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue,
			float64(value), labels...)
	}
	stats := c.source.Stats()
	for status, n := range stats.Results {
		counter(handoffsTotal, n, string(status))
	}
	for code, n := range stats.Alerts {
		counter(alertsTotal, n, string(code))
	}
	counter(alertsLostTotal, stats.AlertsLost)
	gauge(waiting, float64(stats.Waiting))
	gauge(applying, float64(stats.Applying))
	gauge(followerSeq, float64(stats.ReceiptsFollowed), "RECEIPTS")
	gauge(followerSeq, float64(stats.EventsFollowed), "RUNEVENTS")
	gauge(worldPaused, one(stats.WorldPaused))
	gauge(townsPaused, float64(stats.TownsPaused))
	gauge(pluginsAbsent, float64(stats.PluginsAbsent))
	gauge(storageFull, one(stats.StorageFull != ""))
	if stats.ProjectorLagMs != nil {
		gauge(projectorLag, float64(*stats.ProjectorLagMs)/1000)
	}
	overload := c.source.Overload()
	gauge(held, float64(overload.Held))
	gauge(heldBytes, float64(overload.HeldBytes))
	counter(strayTotal, overload.StrayReplies)
	for reason, n := range overload.Refused {
		counter(refusedTotal, n, reason)
	}
	if c.source.Disk != nil {
		gauge(diskFree, float64(c.source.Disk()))
	}
	if c.source.NATS != nil {
		connections, slow := c.source.NATS()
		gauge(natsConnections, float64(connections))
		counter(natsSlow, slow)
	}
	c.streams(gauge)
}

func (c *collector) streams(gauge func(*prometheus.Desc, float64, ...string)) {
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

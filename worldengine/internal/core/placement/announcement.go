package placement

import "time"

// Announcement names the worlds that a server serves and would serve. Each server that shares a NATS with others
// publishes one a second, and one after each change, on layout.ServersSubject. Lists are sorted.
type Announcement struct {
	// ID differs from process to process.
	ID      string    `json:"id"`
	Name    string    `json:"name,omitzero"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// UptimeMillis is for how long the server has been there without a break, by its own clock. Earlier
	// programs do not announce it.
	UptimeMillis int64 `json:"uptimeMillis,omitzero"`
	// URL is the address of HTTP; "" without HTTP.
	URL string `json:"url,omitzero"`
	// Seq grows with each announcement of the process: an older one that comes late is ignored.
	Seq uint64 `json:"seq"`
	// All is set if the server would serve every world; else Worlds names them.
	All    bool     `json:"all,omitzero"`
	Worlds []string `json:"worlds,omitempty"`
	// Failed are the worlds that the server would serve but cannot serve now.
	Failed []string `json:"failed,omitempty"`
	// Reasons say why, by world, for people. Texts and their number are bounded.
	Reasons map[string]string `json:"reasons,omitempty"`
	// Serves are the worlds whose writer the server is.
	Serves []string `json:"serves,omitempty"`
	// Ready are the worlds that others serve, that the server counts as its own, and whose index it has
	// read. Their writers hand them over.
	Ready []string `json:"ready,omitempty"`
	// Indexed are the log sequences up to which the server has indexed its worlds. Servers that stand by
	// read the log when the writer's grows.
	Indexed map[string]uint64 `json:"indexed,omitempty"`
	// Removing are the worlds that the server is removing, so that lists of other servers say so.
	Removing []string `json:"removing,omitempty"`
	// Draining is set if the server is stopping: others prepare to serve its worlds.
	Draining bool `json:"draining,omitzero"`
}

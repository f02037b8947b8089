package messages

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/wire"
)

// Error is the body of every error reply.
type Error struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail is an error. Code is a wire.Code, and Details are the violations in the request.
type ErrorDetail struct {
	Code    string              `json:"code"`
	Message string              `json:"message"`
	Details []schemas.Violation `json:"details"`
}

// ErrorBody returns the body of an error reply.
func ErrorBody(code, message string, details []schemas.Violation) []byte {
	// It cannot fail: text that is not UTF-8 is replaced.
	data, _ := json.Marshal(Error{ErrorDetail{code, message, details}},
		jsontext.AllowInvalidUTF8(true))
	return data
}

// AlertList asks for a page of the alerts, the newest first.
//
//schema:alert-list-request.v1
//schema:example {}
//schema:example {"after": 4711, "limit": 50, "unacknowledged": true}
type AlertList struct {
	// Continue with the alerts that are older than this place: next of the previous page. If left
	// out, the list begins at the newest alert.
	After uint64 `json:"after,omitzero"`
	// The largest number of alerts to answer with; the server chooses if left out.
	Limit int `json:"limit,omitzero" schema:"min=1,max=200"`
	// Whether to leave out acknowledged alerts; false if left out.
	Open bool `json:"unacknowledged,omitzero"`
}

// Alert is an alert in a list, and the reply of alert.ack.
type Alert struct {
	// Seq names the alert in a request of alert.ack.
	Seq uint64 `json:"seq"`
	// ID is shared by all messages about the same alert.
	ID string `json:"id"`
	runevents.Alert
	// More is how many more findings with this code were counted for the run.
	More int64 `json:"more,omitzero"`
	// Acknowledged is the acknowledgement; nil if nobody has dealt with the alert.
	Acknowledged *Acknowledgement `json:"acknowledged,omitzero"`
}

// Acknowledgement is who has dealt with an alert, when and how.
type Acknowledgement struct {
	By     string `json:"by"`
	At     string `json:"at"`
	Reason string `json:"reason,omitzero"`
}

// Alerts is the reply of alert.list, the newest alert first.
type Alerts struct {
	Alerts []Alert `json:"alerts"`
	Next   uint64  `json:"next,omitzero"` // the After of the next page; 0 on the last
}

// AlertAck acknowledges an alert.
//
//schema:alert-ack-request.v1
//schema:example {"seq": 18}
//schema:example {"seq": 18, "actorId": "ada", "reason": "looked at in the game: it was applied"}
type AlertAck struct {
	// The alert: its seq in alert.list.
	Seq uint64 `json:"seq" schema:"min=1"`
	// Who acknowledges it, if the server has no access control; "operator" if left out.
	ActorID string `json:"actorId,omitzero" schema:"id"`
	// The reason, or how the alert was dealt with.
	Reason string `json:"reason,omitzero"`
}

// WhoAmI asks for the rights of its sender.
//
//schema:whoami-request.v1
//schema:example {}
type WhoAmI struct{}

// Identity is the sender of the request, and its rights.
//
//schema:whoami-reply.v1
type Identity struct {
	// The name of the world.
	World string `json:"world"`
	// The name of the user in the access file; left out without access control, and in the world's
	// account if the inbox of the request belongs to no user.
	User string `json:"user,omitzero"`
	// The role of the user; left out without access control.
	Role wire.Role `json:"role,omitzero"`
	// The worlds that the user may use: names, or beginnings of names with "*" at the end; all if
	// left out.
	Worlds []string `json:"worlds,omitempty"`
	// The ids of the towns that the user may act on; all if left out.
	Towns []string `json:"towns,omitempty"`
	// The actorIds that the user may speak for; all if left out.
	Actors []string `json:"actors,omitempty"`
	// The ids of the towns that the user may read; all if left out.
	Read []string `json:"read,omitempty"`
	// The verbs that the user may ask.
	Verbs []wire.Verb `json:"verbs"`
}

// WorldSamples asks for samples of the last minutes.
//
//schema:world-samples-request.v1
//schema:example {}
//schema:example {"townId": "town-threatened", "minutes": 1440, "points": 96}
type WorldSamples struct {
	// Only the handoffs of this town; of all towns that the user may read if left out.
	TownID string `json:"townId,omitzero" schema:"id"`
	// How far back to go; 60 if left out.
	Minutes int `json:"minutes,omitzero" schema:"min=1,max=1440"`
	// How many samples to answer with at most, each of whole minutes; 60 if left out.
	Points int `json:"points,omitzero" schema:"min=1,max=240"`
}

// Sample counts the handoffs that ended in a span of time.
type Sample struct {
	// When the sample begins.
	At string `json:"at"`
	// How many handoffs ended, by the status of the result; "cancelled" counts the cancelled ones.
	Results map[string]int64 `json:"results"`
	// The median time in milliseconds from the arrival of these handoffs to their answers or, with
	// townId, to their persistedAt; left out if none ended.
	P50Ms *int64 `json:"p50Ms,omitzero"`
	// The 99th percentile of these times; left out if none ended.
	P99Ms *int64 `json:"p99Ms,omitzero"`
	// How many handoffs waited or were being applied, on average.
	Waiting float64 `json:"waiting"`
}

// Samples is samples of the last minutes, the oldest first; the last one is not over yet.
//
//schema:world-samples-reply.v1
type Samples struct {
	// How long each sample lasts, in milliseconds.
	StepMs int64 `json:"stepMs" schema:"min=60000"`
	// The samples, without a gap.
	Samples []Sample `json:"samples"`
	// The median of the times of all samples together; left out if no handoff ended.
	P50Ms *int64 `json:"p50Ms,omitzero"`
	// The 99th percentile of these times; left out if no handoff ended.
	P99Ms *int64 `json:"p99Ms,omitzero"`
}

// WorldClients asks for the list of clients.
//
//schema:world-clients-request.v1
//schema:example {}
type WorldClients struct{}

// Client has the connections to NATS of one user under one name.
type Client struct {
	// The user; left out for a client that need not sign in.
	User string `json:"user,omitzero"`
	// The role of the user.
	Role string `json:"role,omitzero"`
	// The name that the client gives its connections.
	Name string `json:"name,omitzero"`
	// How many connections are open.
	Connections int `json:"connections"`
	// When the oldest open connection began.
	Since string `json:"since,omitzero"`
	// When a connection of the client last sent or received something, or ended.
	LastSeen string `json:"lastSeen"`
	// The towns whose commands it takes, as a plugin; * for all.
	Towns []string `json:"towns,omitempty"`
}

// Clients is the list of clients that are connected, then of those that were lately.
//
//schema:world-clients-reply.v1
type Clients struct {
	// The connections of each user, by the names that its clients give; none if NATS is another
	// process.
	Clients []Client `json:"clients"`
}

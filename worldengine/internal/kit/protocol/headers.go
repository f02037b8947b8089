package protocol

import (
	"worldengine/worldengine/wire"
)

// HeaderSpec declares a header of requests and replies of verbs, for the description of the interface.
type HeaderSpec struct {
	Name string
	// Requests and Replies are the verbs whose requests and replies may have the header.
	Requests, Replies []wire.Verb
	Pattern           string // of its value: a regular expression of JSON Schema
	Example           string
	Means             string
}

// Headers returns the declarations of the headers of verbs. ErrorCodeHeader, ErrorHeader and
// RetryAfterHeader are not among them: error replies of every verb have these. The caller must not
// change the slice.
func Headers() []HeaderSpec { return headerSpecs }

var headerSpecs = []HeaderSpec{
	{Name: wire.DryRunHeader, Requests: []wire.Verb{wire.Handoff}, Replies: []wire.Verb{wire.Handoff}, Pattern: "^true$",
		Example: "true", Means: "The handoff is only judged: nothing is stored."},
	{Name: wire.DryRunApplyHeader, Replies: []wire.Verb{wire.Handoff}, Pattern: "^(plugin|rcon)$", Example: "plugin",
		Means: "The reply to a dry run has it if a game would apply the command, and may decide otherwise."},
	{Name: wire.ResultRevisionHeader, Requests: []wire.Verb{wire.Handoff, wire.ResultGet}, Replies: []wire.Verb{wire.Handoff, wire.ResultGet},
		Pattern: "^[01]$", Example: "0", Means: "The revision of the result, asked for and sent."},
	{Name: wire.RunIDHeader, Replies: []wire.Verb{wire.Handoff}, Pattern: "^[^|]+$",
		Example: "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a",
		Means:   "The run of the handoff; a dry run has none."},
	{Name: "traceparent", Requests: []wire.Verb{wire.Handoff}, Pattern: "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}",
		Example: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Means:   "A W3C trace context, which goes on to the game and the run events."},
	{Name: "tracestate", Requests: []wire.Verb{wire.Handoff}, Pattern: "^.*$", Example: "vendor=value",
		Means: "Belongs to traceparent."},
}

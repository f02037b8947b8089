// Package trace propagates a W3C trace context (https://www.w3.org/TR/trace-context/) from the headers of one message to the
// headers of another. Import it to send an agent's trace with its handoffs, or to go on with a command's trace in a game.
// It makes no ids and no spans (docs/adr/0027-traces-are-passed-on.md), and is safe for concurrent use.
package trace

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// The header names, as they are written. They are read in any case, as W3C requires: libraries made
// for HTTP write Traceparent.
const (
	ParentHeader = "traceparent"
	StateHeader  = "tracestate"
)

// maxState is the size in bytes of the longest tracestate that is propagated. W3C requires no more.
const maxState = 512

// Context is a trace context: valid, or the zero Context for none. Its JSON is how it is stored.
type Context struct {
	// Parent is the traceparent: 00-<trace id>-<parent id>-<flags>.
	Parent string `json:"traceparent"`
	// State is the tracestate, "" for none.
	State string `json:"tracestate,omitzero"`
}

// Parse returns the context of a traceparent and a tracestate ("" for none); the zero Context if the
// traceparent is invalid. A tracestate that is invalid, or longer than 512 bytes, is dropped. A
// version later than 00 is read by W3C's rules, and becomes 00.
func Parse(parent, state string) Context {
	parent = parseParent(strings.Trim(parent, blanks))
	if parent == "" {
		return Context{}
	}
	state = strings.Trim(state, blanks)
	if !validState(state) {
		state = ""
	}
	return Context{Parent: parent, State: state}
}

// Extract returns the context in the headers of a message; the zero Context unless they have one
// traceparent.
func Extract(header map[string][]string) Context {
	parents := headerValues(header, ParentHeader)
	if len(parents) != 1 {
		return Context{}
	}
	return Parse(parents[0], strings.Join(headerValues(header, StateHeader), ","))
}

// headerValues returns the values of a header in any case, grouped by its spelling.
func headerValues(header map[string][]string, name string) []string {
	var values []string
	var names []string
	for given := range header {
		if len(given) == len(name) && strings.EqualFold(given, name) {
			names = append(names, given)
		}
	}
	slices.Sort(names)
	for _, given := range names {
		values = append(values, header[given]...)
	}
	return values
}

// IsZero reports whether c is no context.
func (c Context) IsZero() bool { return c == Context{} }

// TraceID returns the id of the trace, 32 hex digits, or "".
func (c Context) TraceID() string {
	if c.Parent == "" {
		return ""
	}
	return c.Parent[3:35]
}

// Inject adds the context, if there is one, to header, or to a new header if that is nil.
func (c Context) Inject(header map[string][]string) map[string][]string {
	if c.IsZero() {
		return header
	}
	if header == nil {
		header = make(map[string][]string, 2)
	}
	header[ParentHeader] = []string{c.Parent}
	if c.State != "" {
		header[StateHeader] = []string{c.State}
	}
	return header
}

// LogAttr returns the traceparent as an attribute of a log line; the empty attribute if there is
// none.
func (c Context) LogAttr() slog.Attr {
	if c.IsZero() {
		return slog.Attr{}
	}
	return slog.String(ParentHeader, c.Parent)
}

const blanks = " \t"

// parentForm is a traceparent: version, trace id, parent id and flags, and more in a later version.
var parentForm = regexp.MustCompile(
	`(?s)^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// parseParent returns a valid traceparent of version 00, or "".
func parseParent(p string) string {
	parts := parentForm.FindStringSubmatch(p)
	if parts == nil || isZeros(parts[2]) || isZeros(parts[3]) {
		return ""
	}
	switch version, flags, more := parts[1], parts[4], parts[5]; {
	case version == "ff", version == "00" && more != "":
		return ""
	case version == "00":
		return p
	case strings.IndexByte("13579bdf", flags[1]) >= 0:
		// Of a later version's flags only the last bit, sampled, is known to mean the same as in 00.
		return "00" + p[2:53] + "01"
	}
	return "00" + p[2:53] + "00"
}

func isZeros(s string) bool { return strings.Trim(s, "0") == "" }

// maxMembers bounds the members of a tracestate.
const maxMembers = 32

// memberForm is a member of a tracestate. Its key has up to 256 characters, or a tenant of up to
// 241, "@" and a system of up to 14; its value has 1 to 256 of printable ASCII without comma and
// equals sign, the last of which is no blank.
var memberForm = regexp.MustCompile(
	`^([a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})=` +
		`[ -+\--<>-~]{0,255}[!-+\--<>-~]$`)

// validState reports whether s is a tracestate: members with commas between them, some of which may
// be empty, and no key twice.
func validState(s string) bool {
	if len(s) > maxState {
		return false
	}
	keys := make([]string, 0, 4)
	for member := range strings.SplitSeq(s, ",") {
		if member = strings.Trim(member, blanks); member == "" {
			continue
		}
		parts := memberForm.FindStringSubmatch(member)
		if parts == nil || slices.Contains(keys, parts[1]) {
			return false
		}
		keys = append(keys, parts[1])
	}
	return len(keys) <= maxMembers && (len(keys) > 0 || s == "")
}

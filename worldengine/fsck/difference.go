package fsck

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/wire"
)

// isDerived reports whether a message is the expected one, in its place.
func isDerived(m *commitlog.Message, want *nats.Msg, at commitlog.Position) bool {
	if !m.Placed || m.At != at {
		return false
	}
	what, _, _ := difference(want, m)
	return what == ""
}

// difference returns what a stored message has other than the derived one, "" for nothing. It does
// not compare their places in the log.
func difference(want *nats.Msg, got *commitlog.Message) (what, wanted, is string) {
	if want.Subject != got.Subject() {
		return "the subject is not the one that the log derives", want.Subject, got.Subject()
	}
	if name := differingHeader(want.Header, got.Headers()); name != "" {
		what = "the header " + name + " is not the one that the log derives"
		if _, ok := want.Header[name]; !ok {
			what = "the log derives no header " + name
		}
		return what, want.Header.Get(name), got.Headers().Get(name)
	}
	if !bytes.Equal(want.Data, got.Data()) {
		wanted, is = excerpts(want.Data, got.Data())
		return "the body is not the one that the log derives", wanted, is
	}
	return "", "", ""
}

// differingHeader returns the name of a header that differs, the first by name, or "".
func differingHeader(want, got nats.Header) (first string) {
	take := func(name string, differs bool) {
		if differs && (first == "" || name < first) {
			first = name
		}
	}
	for name := range got {
		_, ok := want[name]
		take(name, !ok && !ofFollower(name))
	}
	for name := range want {
		take(name, !ofStream(name) && want.Get(name) != got.Get(name))
	}
	return first
}

// ofFollower reports whether a header may stand beside those that are derived: a follower gives an
// id to a message that has none.
func ofFollower(header string) bool { return ofStream(header) || header == jetstream.MsgIDHeader }

// ofStream reports whether a header is about the message's place in the stream, or the server's
// own.
func ofStream(header string) bool {
	switch header {
	case wire.LogSeqHeader, wire.LogPartHeader, repairedHeader:
		return true
	case jetstream.MsgIDHeader:
		return false
	}
	return strings.HasPrefix(header, wire.ServerHeaderPrefix)
}

// wantText names a derived message: an event by its type and id.
func wantText(want *nats.Msg) string {
	if event := want.Header.Get(wire.EventTypeHeader); event != "" {
		return event + " " + want.Header.Get(jetstream.MsgIDHeader)
	}
	return string(want.Data)
}

// placeText renders the place of a derived message, "none" for one that names none.
func placeText(at commitlog.Position) string {
	if at.Seq == 0 {
		return "none"
	}
	return "log sequence " + strconv.FormatUint(at.Seq, 10) + ", part " + strconv.Itoa(at.Part)
}

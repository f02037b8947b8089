package worldengine

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/worldengine/follow"
)

// fsckDerived is a derived stream under check, read side by side with the log. It has a message for
// each that is derived from the log, in the order of the log, but for:
//
//   - what has expired: its log message is older than the stream's MaxAge, or it lies before the first
//     message of a stream that is as full as it may be;
//   - what has outlived its log message, which has left its town's history.
type fsckDerived struct {
	*fsck
	name   string
	derive func(jetstream.Msg) ([]*nats.Msg, error)
	// alone says what is wrong with a message that has outlived its log message, or "".
	alone func(*fsckMessage) string
	// lostLog says whether such a message is of a commit that the log has lost, and reports it.
	lostLog func(context.Context, *fsckMessage) (bool, error)
	// same counts the messages that are what the log says.
	same *int64

	stream  jetstream.Stream
	cursor  *fsckCursor // nil where there is no such stream
	maxAge  time.Duration
	gap     fsckGap
	ended   bool   // the end of the stream was waited at for what turned out to be given up
	stalled bool   // the stream did not come up to the log in time, and is not checked from there on
	damage  int    // findings but for that one
	lost    int64  // messages that could not be derived again: they have outlived their log message
	last    uint64 // the last message of the log whose derived ones have not expired
}

// fsckGap is the log sequences between two messages of the log that follow each other: those
// between have left it.
type fsckGap struct{ after, before uint64 }

func (g fsckGap) has(seq uint64) bool { return g.after < seq && seq < g.before }

// open finds the stream and begins to read it. A stream that does not exist is a finding.
func (d *fsckDerived) open(ctx context.Context) error {
	var err error
	if d.stream, err = d.openStream(ctx, d.name); err != nil {
		return err
	}
	if d.stream == nil {
		d.maxAge = dedupe.DefaultRetention
		d.find(FsckFinding{Stream: d.name, What: "the stream does not exist"})
		return nil
	}
	d.maxAge = d.stream.CachedInfo().Config.MaxAge
	d.cursor, err = openFsckCursor(ctx, d.stream, d.nc.MaxPayload())
	return err
}

func (d *fsckDerived) close(ctx context.Context) {
	if d.cursor != nil {
		d.cursor.close(ctx)
	}
}

// checked says whether the stream is there to be compared with the log.
func (d *fsckDerived) checked() bool { return d.cursor != nil && !d.stalled }

// wait returns the next message of a stream that is at its end, or nil when the stream stands still
// for the patience of the check.
func (d *fsckDerived) wait(ctx context.Context) (*fsckMessage, error) {
	for until := time.Now().Add(d.options.Patience); ; {
		m, err := d.cursor.peek(ctx, 0)
		if m != nil || err != nil || time.Now().After(until) {
			return m, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// stall ends the check of a stream that stands still before the message wanted of it.
func (d *fsckDerived) stall(m *fsckMessage, want *nats.Msg) {
	d.stalled = true
	d.find(FsckFinding{
		Stream: d.name, Sequence: d.cursor.last, LogSequence: m.seq, Subject: want.Subject, Town: m.town,
		What: "the stream ends before the log does", Want: wantText(want),
	})
}

// pass moves on over messages whose log messages have left the log, as far as they are at hand.
func (d *fsckDerived) pass(ctx context.Context) error {
	for {
		got, err := d.cursor.glance(ctx)
		if err != nil || got == nil || !got.placed || !d.gap.has(got.at.seq) {
			return err
		}
		if err := d.outlived(ctx, got); err != nil {
			return err
		}
		d.cursor.take()
	}
}

// outlived checks a message whose log message is gone by itself.
func (d *fsckDerived) outlived(ctx context.Context, got *fsckMessage) error {
	if lost, err := d.lostLog(ctx, got); lost || err != nil {
		return err
	}
	d.byItself(got)
	return nil
}

// byItself checks a message that cannot be derived again by itself.
func (d *fsckDerived) byItself(got *fsckMessage) {
	d.report.Counts.Outlived++
	d.lost++
	if wrong := d.alone(got); wrong != "" {
		d.wrong(got, "a message whose log message has left the history contradicts itself", "", wrong)
	}
}

// maxAhead is how many messages of a derived stream are looked through for one that is not next.
const maxAhead = 64

// ahead says whether the message wanted at a position comes within the next ones.
func (d *fsckDerived) ahead(ctx context.Context, want *nats.Msg, at logPosition) (bool, error) {
	for n := 1; n <= maxAhead; n++ {
		got, err := d.cursor.peek(ctx, n)
		if got == nil || err != nil {
			return false, err
		}
		if got.is(want, at) {
			return true, nil
		}
	}
	return false, nil
}

// meets takes note of the next message of the log.
func (d *fsckDerived) meets(m *fsckMessage, gap fsckGap) {
	d.gap = gap
	if !d.expired(m) {
		d.last = m.seq
	}
}

// expired says whether what is derived from a log message may be gone because of its age.
func (d *fsckDerived) expired(m *fsckMessage) bool {
	return d.maxAge > 0 && d.now().Sub(m.stored) > d.maxAge
}

// rest goes through what the stream has beyond the last message of the log that was checked. each
// gets the messages that are not known to be newer.
func (d *fsckDerived) rest(ctx context.Context, each func(*fsckMessage) error) error {
	info, err := d.stream.Info(ctx)
	if err != nil {
		return d.cursor.broken(err)
	}
	for {
		got, err := d.cursor.peek(ctx, 0)
		if got == nil || err != nil || got.seq > info.State.LastSeq {
			return err
		}
		d.cursor.take()
		if got.placed && d.gap.has(got.at.seq) {
			if err := d.outlived(ctx, got); err != nil {
				return err
			}
			continue
		}
		if newer, err := d.isNewer(ctx, got); err != nil {
			return err
		} else if newer {
			continue
		}
		if err := each(got); err != nil {
			return err
		}
	}
}

// isNewer says whether a message was derived from one that came to the log after the check began.
func (d *fsckDerived) isNewer(ctx context.Context, got *fsckMessage) (bool, error) {
	if !got.placed || got.at.seq <= d.end {
		return false, nil
	}
	if got.at.seq > d.logNow {
		info, err := d.log.Info(ctx)
		if err != nil {
			return false, d.cursor.broken(err)
		}
		d.logNow = info.State.LastSeq
	}
	return got.at.seq <= d.logNow, nil
}

// missing reports a message that is not there.
func (d *fsckDerived) missing(m *fsckMessage, want *nats.Msg, what string) {
	if d.expired(m) {
		d.report.Counts.Expired++
		return
	}
	d.damage++
	d.find(FsckFinding{
		Stream: d.name, LogSequence: m.seq, Subject: want.Subject, Town: m.town,
		What: what, Want: wantText(want),
	})
}

// givenUp says whether a message is not there because it was given up, and reports that.
func (d *fsckDerived) givenUp(
	ctx context.Context, m *fsckMessage, want *nats.Msg, at logPosition,
) (bool, error) {
	if d.letters == nil {
		return false, nil
	}
	subject := DeadLetterSubject(d.world, d.name, strconv.FormatUint(at.seq, 10), strconv.Itoa(at.part))
	letter, err := lastStored(ctx, d.letters, subject)
	if letter == nil || err != nil {
		return false, err
	}
	d.report.Counts.DeadLettered++
	d.find(FsckFinding{
		Kind: FsckDeadLettered, Stream: d.name, LogSequence: m.seq, Subject: want.Subject, Town: m.town,
		What: "it was given up, and is a dead letter", Want: wantText(want), Got: subject,
	})
	return true, nil
}

// wantText names a derived message: an event by its type and id.
func wantText(want *nats.Msg) string {
	if event := want.Header.Get(EventTypeHeader); event != "" {
		return event + " " + want.Header.Get(jetstream.MsgIDHeader)
	}
	return string(want.Data)
}

// wrong reports a message that is there. What is left of a damaged commit is no reason for a repair, which
// could only lose it.
func (d *fsckDerived) wrong(got *fsckMessage, what, want, is string) {
	if d.absentCommits[got.at.seq].fate != fateDamaged {
		d.damage++
	}
	d.find(FsckFinding{
		Stream: d.name, Sequence: got.seq, LogSequence: got.at.seq, Subject: got.Subject(), Town: got.town,
		What: what, Want: want, Got: is,
	})
}

// is says whether the message is the one that is derived at a position.
func (m *fsckMessage) is(want *nats.Msg, at logPosition) bool {
	if !m.placed || m.at != at || m.Subject() != want.Subject || !bytes.Equal(m.Data(), want.Data) {
		return false
	}
	for name := range m.Headers() {
		if _, ok := want.Header[name]; !ok && !ofFollower(name) {
			return false
		}
	}
	for name := range want.Header {
		if !ofStream(name) && m.Headers().Get(name) != want.Header.Get(name) {
			return false
		}
	}
	return true
}

// difference says what a stored message has other than the derived one, "" for nothing. Its place in
// the log is not looked at.
func difference(want *nats.Msg, got *fsckMessage) (what, wanted, is string) {
	if want.Subject != got.Subject() {
		return "the subject is not what the log says", want.Subject, got.Subject()
	}
	for _, name := range slices.Sorted(maps.Keys(got.Headers())) {
		if _, ok := want.Header[name]; !ok && !ofFollower(name) {
			return "the log says nothing of the header " + name, "", got.Headers().Get(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want.Header)) {
		if w, g := want.Header.Get(name), got.Headers().Get(name); w != g && !ofStream(name) {
			return "the header " + name + " is not what the log says", w, g
		}
	}
	if !bytes.Equal(want.Data, got.Data()) {
		wanted, is = excerpts(want.Data, got.Data())
		return "the body is not what the log says", wanted, is
	}
	return "", "", ""
}

// ofFollower says whether a header may stand beside those that are derived: a follower gives an id to
// a message that has none.
func ofFollower(header string) bool { return ofStream(header) || header == jetstream.MsgIDHeader }

// ofStream says whether a header is about the message's place in the stream, or the server's own.
func ofStream(header string) bool {
	switch header {
	case follow.LogSeqHeader, follow.LogPartHeader, repairedHeader:
		return true
	case jetstream.MsgIDHeader:
		return false
	}
	return strings.HasPrefix(header, "Nats-")
}

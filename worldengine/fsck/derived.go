package fsck

import (
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/dedupe"
	"worldengine/worldengine/backoff"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/follow"
)

// derivedCheck is a derived stream under check, read side by side with the log. It has the messages
// that the log derives, in the order of the log, but for:
//
//   - a message that has expired: its log message is older than the stream's MaxAge, or it lies
//     before the first message of a stream that is as full as it may be;
//   - a message more, where its log message has left its town's history: it has outlived that.
type derivedCheck struct {
	*worldCheck
	name   string
	noun   string // of one message, for findings
	rules  streamRules
	derive func(jetstream.Msg) ([]follow.Message, error)
	// same counts the messages that are the ones that the log derives.
	same *int64

	stream  jetstream.Stream
	cursor  *cursor // nil where there is no such stream
	maxAge  time.Duration
	gap     logGap
	ended   bool   // the check waited at the end for a message that turned out to be given up
	stalled bool   // the stream stood still before the end of the log, and is checked no further
	damage  int    // findings that a repair mends, but for a stall
	orphans int64  // messages that have outlived their log message: a repair cannot derive them
	last    uint64 // the last message of the log whose derived ones have not expired
	// reached is the last message of the log whose derived ones the stream is known to have, or to
	// have had, 0 where all have expired; letter is the last one of which something was given up.
	reached, letter uint64
	// frontSeq is the first sequence of a full stream: a message before it was discarded since it
	// was read.
	frontSeq uint64
	// reported are the sequences of messages that were reported before their turn.
	reported map[uint64]bool
}

// logGap is the log sequences between two messages of the log that follow each other: those
// between have left it.
type logGap struct{ after, before uint64 }

func (g logGap) has(seq uint64) bool { return g.after < seq && seq < g.before }

// derived returns the messages that the log derives from one of its own.
func (d *derivedCheck) derived(m jetstream.Msg) ([]*nats.Msg, error) {
	derived, err := d.derive(m)
	messages := make([]*nats.Msg, len(derived))
	for i := range derived {
		messages[i] = derived[i].Msg()
	}
	return messages, err
}

// open finds the stream and begins to read it. A stream that does not exist is a finding.
func (d *derivedCheck) open(ctx context.Context) error {
	var err error
	if d.stream, err = d.openStream(ctx, d.name); err != nil {
		return err
	}
	if d.stream == nil {
		d.maxAge = dedupe.DefaultRetention
		d.find(Finding{Stream: d.name, What: "the stream does not exist"})
		return nil
	}
	d.maxAge = d.stream.CachedInfo().Config.MaxAge
	d.cursor, err = openCursor(ctx, d.stream, d.nc.MaxPayload(), d.options.FetchWait)
	return err
}

func (d *derivedCheck) close(ctx context.Context) {
	if d.cursor != nil {
		d.cursor.close(ctx)
	}
}

// checked reports whether the stream is there to be compared with the log.
func (d *derivedCheck) checked() bool { return d.cursor != nil && !d.stalled }

// wait returns the next message of a stream that is at its end, or nil when the stream stands still
// for the patience of the check.
func (d *derivedCheck) wait(ctx context.Context) (*commitlog.Message, error) {
	for until := time.Now().Add(d.options.Patience); ; {
		m, err := d.cursor.peek(ctx, 0)
		if m != nil || err != nil || time.Now().After(until) {
			return m, err
		}
		if err := backoff.Sleep(ctx, commitlog.RetryDelay); err != nil {
			return nil, err
		}
	}
}

// stall ends the check of a stream that stands still before the expected message.
func (d *derivedCheck) stall(want *expected) {
	d.stalled = true
	finding := d.about(want, "the stream ends before the log does")
	finding.Sequence = d.cursor.last
	d.find(finding)
}

// leftLog reports whether the log message that a message names has left the log at the place of the
// merge.
func (d *derivedCheck) leftLog(got *commitlog.Message) bool {
	return got.Placed && d.gap.has(got.At.Seq)
}

// outlived checks a message whose log message is gone by itself.
func (d *derivedCheck) outlived(ctx context.Context, got *commitlog.Message) error {
	if lost, err := d.rules.logLost(ctx, got); lost || err != nil {
		return err
	}
	d.byItself(got)
	return nil
}

// byItself checks a message that cannot be derived again by itself.
func (d *derivedCheck) byItself(got *commitlog.Message) {
	d.report.Counts.Outlived++
	d.orphans++
	if wrong := d.rules.flaw(got); wrong != "" {
		d.wrong(got, "a message whose log message has left the history contradicts itself", "",
			wrong)
	}
}

// maxAhead is how many messages of a derived stream are looked through for one that is not next.
const maxAhead = 64

// ahead reports whether the expected message comes within the next ones.
func (d *derivedCheck) ahead(ctx context.Context, want *expected) (bool, error) {
	for n := 1; n <= maxAhead; n++ {
		got, err := d.cursor.peek(ctx, n)
		if got == nil || err != nil {
			return false, err
		}
		if want.is(got) {
			return true, nil
		}
	}
	return false, nil
}

// meets takes note of the next message of the log.
func (d *derivedCheck) meets(m *commitlog.Message, gap logGap) {
	d.gap = gap
	if !d.expired(m) {
		d.last = m.Seq
	}
}

// expired reports whether what is derived from a log message may be gone because of its age.
func (d *derivedCheck) expired(m *commitlog.Message) bool {
	return d.maxAge > 0 && d.now().Sub(m.Stored) > d.maxAge
}

// isNewer reports whether a message was derived from one that came to the log after the check
// began.
func (d *derivedCheck) isNewer(ctx context.Context, got *commitlog.Message) (bool, error) {
	if !got.Placed || got.At.Seq <= d.end {
		return false, nil
	}
	if got.At.Seq > d.logNow {
		info, err := d.log.Info(ctx)
		if err != nil {
			return false, d.cursor.broken(err)
		}
		d.logNow = info.State.LastSeq
	}
	return got.At.Seq <= d.logNow, nil
}

// about begins a finding about an expected message.
func (d *derivedCheck) about(want *expected, what string) Finding {
	return Finding{
		Stream: d.name, LogSequence: want.source.Seq, Subject: want.Subject, Town: want.source.Town,
		What: what, Want: wantText(want.Msg),
	}
}

// reportMissing reports an expected message that is missing.
func (d *derivedCheck) reportMissing(want *expected) {
	d.damage++
	d.find(d.about(want, "the "+d.noun+" is missing"))
}

// givenUp reports whether an expected message is absent because the follower gave it up, and takes
// that into the report.
func (d *derivedCheck) givenUp(ctx context.Context, want *expected) (bool, error) {
	if d.letters == nil {
		return false, nil
	}
	subject := d.letterOf(want)
	letter, err := commitlog.LastStored(ctx, d.letters, subject)
	if letter == nil || err != nil {
		return false, err
	}
	if slices.Contains(d.missing, subject) {
		return false, nil
	}
	d.letter = want.at.Seq
	d.report.Counts.DeadLettered++
	finding := d.about(want, "it was given up, and is kept as a dead letter")
	finding.Kind, finding.Got = DeadLettered, subject
	d.find(finding)
	return true, nil
}

// differs reports a message that stands for the expected one.
func (d *derivedCheck) differs(got *commitlog.Message, want *expected) {
	what, wanted, is := difference(want.Msg, got)
	if what == "" {
		what = "the headers do not name the " + d.noun + "'s place in the log"
		wanted, is = placeText(want.at), placeText(got.At)
	}
	got.Town = want.source.Town
	d.wrong(got, what, wanted, is)
}

// wrong reports a message that is there. What is left of a damaged commit is no reason for a
// repair, which could only lose it.
func (d *derivedCheck) wrong(got *commitlog.Message, what, want, is string) {
	if d.absentCommits[got.At.Seq].loss != lossInPlace {
		d.damage++
	}
	d.find(Finding{
		Stream: d.name, Sequence: got.Seq, LogSequence: got.At.Seq,
		Subject: got.Subject(), Town: got.Town,
		What: what, Want: want, Got: is,
	})
}

package server

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// natsLogger passes what the NATS server says to slog, and the first reason why it gives up to
// gaveUp. Clients can make NATS log a line for each message that they send, so of each kind only
// some are logged.
type natsLogger struct {
	logger *slog.Logger
	gaveUp chan<- string
	failed func(why string) // called when a write to the disk failed
	limit  *lineLimit
}

func newNATSLogger(logger *slog.Logger, gaveUp chan<- string) natsLogger {
	return natsLogger{logger: logger, gaveUp: gaveUp, failed: func(string) {},
		limit: newLineLimit()}
}

func (l natsLogger) Noticef(format string, v ...any) { l.logger.Debug(fmt.Sprintf(format, v...)) }

// Errorf tells a failed write apart: after it NATS stores nothing more in the stream, and answers
// no request to.
func (l natsLogger) Errorf(format string, v ...any) {
	if text := fmt.Sprintf(format, v...); isWriteFailure(text) {
		l.failed(text)
	}
	l.log(l.logger.Error, format, v)
}

// isWriteFailure reports whether a line of NATS (2.15) says that it could not write to the disk.
// Lines with what clients choose begin otherwise.
func isWriteFailure(text string) bool {
	return strings.HasPrefix(text, "Filestore [") &&
		strings.Contains(text, "] Critical write error") ||
		strings.HasPrefix(text, "JetStream failed to store a msg") ||
		strings.HasPrefix(text, "JetStream out of")
}

// Fatalf is what the NATS server calls before it ends.
func (l natsLogger) Fatalf(format string, v ...any) {
	l.logger.Error(fmt.Sprintf(format, v...))
	select {
	case l.gaveUp <- fmt.Sprintf(format, v...):
	default:
	}
}

// Warnf leaves out the advice against passwords in a configuration file, where there are none:
// those that are not hashed come from files of their own or from the environment; and the advice to
// use TLS for WebSockets, whose listener is on loopback, behind the one that has it.
func (l natsLogger) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Filesystem permission denied") { // NATS then stores nothing more
		l.failed(fmt.Sprintf(format, v...))
	}
	if !strings.HasPrefix(format, "Plaintext passwords") &&
		!strings.HasPrefix(format, "Websocket not configured with TLS") {
		l.log(l.logger.Warn, format, v)
	}
}

func (l natsLogger) Debugf(format string, v ...any) {}
func (l natsLogger) Tracef(format string, v ...any) {}

// log logs a line where one of its kind may be logged now, with how many were left out before.
func (l natsLogger) log(log func(string, ...any), format string, v []any) {
	text := fmt.Sprintf(format, v...)
	may, leftOut := l.limit.may(kindOf(text))
	switch {
	case !may:
	case leftOut > 0:
		log(text, "leftOut", leftOut)
	default:
		log(text)
	}
}

// kindOf returns the kind of a line: what comes after the connection that it is about, without what
// clients choose, as far as the message shows.
func kindOf(text string) string {
	if parts := strings.SplitN(text, " - ", 3); len(parts) > 1 &&
		strings.Contains(parts[1], "cid:") {
		text = parts[len(parts)-1]
		if quoted := strings.LastIndex(text, `" - `); quoted >= 0 && strings.HasPrefix(text, `"`) {
			text = text[quoted+len(`" - `):]
		}
	}
	return text[:min(len(text), kindLength, indexOrEnd(text, `"`), indexOrEnd(text, ":"))]
}

func indexOrEnd(text, of string) int {
	if i := strings.Index(text, of); i >= 0 {
		return i
	}
	return len(text)
}

const (
	kindLength = 24
	// linesOfAKind may be logged within linesPeriod.
	linesOfAKind = 10
	linesPeriod  = 10 * time.Second
	// mostKinds bounds the kinds that are counted apart; all others are one.
	mostKinds = 256
)

// lineLimit bounds log lines by their kind. It is safe for concurrent use.
type lineLimit struct {
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*kindOfLine
}

type kindOfLine struct {
	began           time.Time
	logged, leftOut int
}

func newLineLimit() *lineLimit {
	return &lineLimit{now: time.Now, kinds: map[string]*kindOfLine{}}
}

// may reports whether a line of a kind may be logged, and how many were left out since the last
// one.
func (l *lineLimit) may(kind string) (may bool, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil && len(l.kinds) >= mostKinds {
		kind = "" // all others
		k = l.kinds[kind]
	}
	if k == nil {
		k = &kindOfLine{}
		l.kinds[kind] = k
	}
	if now := l.now(); now.Sub(k.began) >= linesPeriod {
		k.began, k.logged = now, 0
	}
	if k.logged >= linesOfAKind {
		k.leftOut++
		return false, 0
	}
	k.logged++
	leftOut, k.leftOut = k.leftOut, 0
	return true, leftOut
}

package embedded

import (
	"fmt"
	"log/slog"
	"strings"

	"worldengine/worldengine/internal/kit/ratelimit"
)

// natsLogger writes the log lines of the NATS server to slog, and the first reason why NATS gives up to gaveUp. Clients can cause a line for each message that they send, so lines of one kind
// are limited.
type natsLogger struct {
	logger *slog.Logger
	gaveUp chan<- string
	failed func(why string) // called when a write to the disk failed
}

func newNATSLogger(logger *slog.Logger, gaveUp chan<- string, failed func(why string)) natsLogger {
	return natsLogger{ratelimit.Logger(logger, kindOf), gaveUp, failed}
}

// Noticef logs for developers.
func (l natsLogger) Noticef(format string, v ...any) { l.logger.Debug(fmt.Sprintf(format, v...)) }

// Errorf also detects a failed write: after it NATS stores nothing more in the stream, and answers
// no request to store there. A client that left while NATS registered it is no error.
func (l natsLogger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if isWriteFailure(text) {
		l.failed(text)
	}
	if strings.Contains(text, "Problem registering with account") &&
		strings.HasSuffix(text, ": connection closed") {
		l.logger.Debug(text)
		return
	}
	l.logger.Error(text)
}

// isWriteFailure reports whether a line of NATS (2.15) says that it could not write to the disk.
// Lines with text of clients begin otherwise.
func isWriteFailure(text string) bool {
	return strings.HasPrefix(text, "Filestore [") &&
		strings.Contains(text, "] Critical write error") ||
		strings.HasPrefix(text, "JetStream failed to store a msg") ||
		strings.HasPrefix(text, "JetStream out of")
}

// Fatalf is called before the NATS server ends.
func (l natsLogger) Fatalf(format string, v ...any) {
	l.logger.Error(fmt.Sprintf(format, v...))
	select {
	case l.gaveUp <- fmt.Sprintf(format, v...):
	default:
	}
}

// Warnf logs a warning, reports a denied write, and says that NATS rebuilds the index of a stream. It
// drops the warning about WebSockets without TLS: their listener is on loopback.
func (l natsLogger) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	switch {
	case strings.HasPrefix(format, "Websocket not configured with TLS"):
		return
	case strings.HasPrefix(format, "Filesystem permission denied"): // NATS then stores nothing more
		l.failed(text)
	case strings.Contains(format, "] Recovering stream state from index errored"),
		strings.Contains(format, "attempting to recover"):
		text += ": the index of the stream was behind, as after a kill, and NATS rebuilds it"
	}
	l.logger.Warn(text)
}

func (l natsLogger) Debugf(format string, v ...any) {}
func (l natsLogger) Tracef(format string, v ...any) {}

// kindOf returns the kind of a line: its text after the connection that it names, up to the first
// quote or colon, after which text of clients may follow.
func kindOf(text string) string {
	if parts := strings.SplitN(text, " - ", 3); len(parts) > 1 &&
		strings.Contains(parts[1], "cid:") {
		text = parts[len(parts)-1]
		if quoted := strings.LastIndex(text, `" - `); quoted >= 0 && strings.HasPrefix(text, `"`) {
			text = text[quoted+len(`" - `):]
		}
	}
	if end := strings.IndexAny(text, `":`); end >= 0 {
		text = text[:end]
	}
	return text[:min(len(text), kindLength)]
}

// kindLength bounds the name of a kind.
const kindLength = 24

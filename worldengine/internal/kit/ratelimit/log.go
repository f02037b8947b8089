package ratelimit

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Bounds of a log.
const (
	// LinesOfAKind may be logged within LinesWindow.
	LinesOfAKind = 10
	LinesWindow  = 10 * time.Second
	// maxText bounds an attribute in bytes. A stack of a panic is shorter.
	maxText = 8 << 10
)

// Logger returns a logger that bounds the lines of each kind, and the length of their attributes.
// The line after some that were left out says how many, as leftOut. kindOf returns the kind of a
// message; nil means the message itself, which must not contain text of clients. Lines below
// slog.LevelInfo are not bounded. A logger that is bounded already gets another bound instead.
func Logger(logger *slog.Logger, kindOf func(message string) string) *slog.Logger {
	next := logger.Handler()
	if bounded, ok := next.(*handler); ok {
		next = bounded.Handler
	}
	if kindOf == nil {
		kindOf = func(message string) string { return message }
	}
	return slog.New(&handler{next, New(LinesOfAKind, LinesWindow), kindOf})
}

// handler is the bounded handler of a log.
type handler struct {
	slog.Handler
	limit  *Limit
	kindOf func(string) string
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo {
		return h.Handler.Handle(ctx, r)
	}
	may, leftOut := h.limit.May(h.kindOf(r.Message), r.Time)
	if !may {
		return nil
	}
	bounded := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		bounded.AddAttrs(shortened(a))
		return true
	})
	if leftOut > 0 {
		bounded.AddAttrs(slog.Int("leftOut", leftOut))
	}
	return h.Handler.Handle(ctx, bounded)
}

// shortened returns an attribute whose text is at most maxText long.
func shortened(a slog.Attr) slog.Attr {
	text := ""
	switch value := a.Value.Resolve(); value.Kind() {
	case slog.KindString:
		text = value.String()
	case slog.KindAny:
		if err, ok := value.Any().(error); ok {
			text = err.Error()
		}
	}
	if len(text) <= maxText {
		return a
	}
	return slog.String(a.Key, strings.ToValidUTF8(text[:maxText], "")+"…")
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limit, h.kindOf}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limit, h.kindOf}
}

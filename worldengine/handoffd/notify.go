package handoffd

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// The states that are reported to a supervisor such as systemd (sd_notify(3)).
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
	notifyWatchdog = "WATCHDOG=1"
)

// notify reports a state to the supervisor that has set NOTIFY_SOCKET, if any. Package net finds a
// name that begins with @ in the abstract namespace.
func notify(state string, logger *slog.Logger) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		logger.Warn("the supervisor cannot be reached", "state", state, "error", err)
	}
}

// watchdog reports that the process lives, until ctx is done, if the supervisor asks for it: twice
// within the time that the supervisor waits.
func watchdog(ctx context.Context, logger *slog.Logger) {
	microseconds, _ := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if microseconds <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return
	}
	for range time.Tick(time.Duration(microseconds) * time.Microsecond / 2) {
		if ctx.Err() != nil {
			return
		}
		notify(notifyWatchdog, logger)
	}
}

package main

import (
	"context"
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

// notify tells the supervisor that has set NOTIFY_SOCKET; without one it does nothing. A name that
// begins with @ is one of the abstract namespace, as package net has it.
func notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// watchdogInterval is how often the supervisor wants to hear that the process lives: twice in
// the time that it waits, and 0 if it does not.
func watchdogInterval() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	microseconds, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if err != nil || microseconds <= 0 {
		return 0
	}
	return time.Duration(microseconds) * time.Microsecond / 2
}

// watchdog tells the supervisor that the process lives until ctx is done. failed gets each error of
// that.
func watchdog(ctx context.Context, failed func(error)) {
	interval := watchdogInterval()
	if interval == 0 {
		return
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if err := notify(notifyWatchdog); err != nil {
				failed(err)
			}
		}
	}
}

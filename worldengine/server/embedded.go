package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// maxPayload is the largest message that the embedded NATS takes. It is larger than anything that
// the engine reads, so that a payload that is too large gets a precise 413 and not a closed
// connection.
const maxPayload = 16 << 20

// Bounds of what clients may cost an embedded NATS; docs/reliability.md says what they come to. What NATS
// keeps for a client that does not read is bounded by its own 64 MiB, and that for 10 s.
const (
	// maxSubscriptions bounds those of one connection.
	maxSubscriptions = 10_000
	// maxPings is how often a silent client is asked whether it is there before it is taken for gone.
	maxPings = 2
)

// pingInterval is after what silence a client is asked; a variable for the tests.
var pingInterval = 20 * time.Second

// ErrDataInUse says that another server works on the data directory. Stop it, or give another.
var ErrDataInUse = errors.New("server: another server uses this data directory")

// embedded is a NATS server within this process, with JetStream on files in a data directory that
// it alone uses.
type embedded struct {
	nats     *natsserver.Server
	lock     *os.File
	accounts *accounts // nil without access control
}

// startEmbedded starts the NATS server of a configuration.
func startEmbedded(config *Config) (*embedded, error) {
	host, port, err := listenOn(config)
	if err != nil {
		return nil, err
	}
	lock, err := lockDataDir(config.Data)
	if err != nil {
		return nil, err
	}
	options := &natsserver.Options{
		ServerName: "handoffd", Host: host, Port: port,
		JetStream: true, StoreDir: config.Data,
		SyncAlways: config.Sync == SyncAlways, SyncInterval: config.SyncInterval,
		MaxPayload: maxPayload, MaxConn: config.MaxConnections, MaxSubs: maxSubscriptions,
		PingInterval: pingInterval, MaxPingsOut: maxPings, NoSigs: true, DontListen: config.private,
	}
	accounts, err := accountsOf(config)
	if err != nil {
		lock.Close()
		return nil, err
	}
	accounts.configure(options)
	ns, err := natsserver.NewServer(options)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("server: embedded NATS: %w", err)
	}
	gaveUp := make(chan string, 1)
	ns.SetLoggerV2(natsLogger{config.Logger.With("component", "nats"), gaveUp}, false, false, false)
	ns.Start()
	if err := awaitNATS(ns, gaveUp); err != nil {
		ns.Shutdown()
		lock.Close()
		return nil, fmt.Errorf("server: embedded NATS on %s with the data directory %s: %w", config.Listen, config.Data, err)
	}
	if err := accounts.connect(ns); err != nil {
		ns.Shutdown()
		lock.Close()
		return nil, err
	}
	return &embedded{nats: ns, lock: lock, accounts: accounts}, nil
}

// awaitNATS waits until a NATS server that was started listens, or has given up.
func awaitNATS(ns *natsserver.Server, gaveUp <-chan string) error {
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); {
		if ns.ReadyForConnections(100 * time.Millisecond) {
			return nil
		}
		select {
		case why := <-gaveUp:
			return errors.New(why)
		default:
		}
	}
	return errors.New("it does not listen")
}

// listenOn returns where the NATS server listens, once that may be.
func listenOn(config *Config) (host string, port int, err error) {
	if config.private {
		return "", 0, nil
	}
	if host, port, err = splitListen(config.Listen); err != nil {
		return "", 0, err
	}
	if err := CheckListen(config); err != nil {
		return "", 0, err
	}
	if port == 0 {
		port = natsserver.RANDOM_PORT
	}
	return host, port, portIsFree(config.Listen)
}

// portIsFree says at once what the NATS server would only log.
func portIsFree(listen string) error {
	probe, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("server: cannot listen on %s: %w", listen, err)
	}
	return probe.Close()
}

// lockDataDir makes the directory and takes it for this process. The kernel gives it back when the
// process ends, however it ends.
func lockDataDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("server: data directory: %w", err)
	}
	path := filepath.Join(dir, "handoffd.lock")
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("server: data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s", ErrDataInUse, dir)
		}
		return nil, fmt.Errorf("server: data directory: lock %s: %w", path, err)
	}
	return lock, nil
}

// close ends the NATS server, which flushes its files, and gives the data directory back.
func (e *embedded) close() {
	e.nats.Shutdown()
	e.nats.WaitForShutdown()
	e.lock.Close()
}

// natsLogger passes what the NATS server says to slog, and the first reason why it gives up to gaveUp.
type natsLogger struct {
	logger *slog.Logger
	gaveUp chan<- string
}

func (l natsLogger) Noticef(format string, v ...any) { l.logger.Debug(fmt.Sprintf(format, v...)) }
func (l natsLogger) Errorf(format string, v ...any)  { l.logger.Error(fmt.Sprintf(format, v...)) }

// Fatalf is what the NATS server calls before it ends.
func (l natsLogger) Fatalf(format string, v ...any) {
	l.Errorf(format, v...)
	select {
	case l.gaveUp <- fmt.Sprintf(format, v...):
	default:
	}
}

// Warnf leaves out the advice against a maximal payload over 8 MB: see maxPayload; and that against
// passwords in a configuration file, where there are none: those that are not hashed come from files of
// their own or from the environment.
func (l natsLogger) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Maximum payloads over") || strings.HasPrefix(format, "Plaintext passwords") {
		return
	}
	l.logger.Warn(fmt.Sprintf(format, v...))
}

func (l natsLogger) Debugf(format string, v ...any) {}
func (l natsLogger) Tracef(format string, v ...any) {}

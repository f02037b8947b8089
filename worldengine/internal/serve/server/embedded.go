package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/serve/httpd"
	"worldengine/worldengine/internal/store/storage"
)

// maxPayload is the largest message that the embedded NATS accepts from the engine and from
// operators. The largest records have a town's state, an agent's handoff and the decision, or the
// events of an append. maxRequest is the largest message from clients: a quarter more than the
// largest request (run.append, 1 MB). So a slightly too large request gets a precise 413, not a
// closed connection.
const (
	maxPayload = 8 << 20
	maxRequest = 1280 << 10
)

// maxPending bounds the bytes that NATS keeps for a connection that does not read. Above three
// quarters of maxPending NATS delivers nothing to the connection, and requests to it get "no
// responders". So a flood of requests does not close the server's own connections.
const maxPending = 128 << 20

// maxStore is more than any disk has: package storage watches the room on the disk. NATS's own
// bound would stay at three quarters of the room that was free at its start.
const maxStore = 1 << 60

// Bounds of the cost of clients for an embedded NATS; docs/reliability.md has their sum. NATS keeps
// up to maxPending for a client that does not read, for 10 s.
const (
	// ownConnections is how many connections NATS accepts for operators and for the server itself,
	// in addition to the clients' connections.
	ownConnections = 16
	// maxSubscriptions bounds the subscriptions of one connection.
	maxSubscriptions = 10_000
	// maxPings is how often a silent client is pinged before it counts as gone.
	maxPings = 2
)

// noOrigin is the origin of no page (RFC 6761, section 6.4).
const noOrigin = "http://origin.invalid"

// loginTimeout bounds the TLS handshake of a connection, and the sign-in after it.
const loginTimeout = 2 * time.Second

// pingInterval is the silence after which a client is pinged.
const pingInterval = 20 * time.Second

// writeDeadline is how long a client may leave a message unread.
const writeDeadline = natsserver.DEFAULT_FLUSH_DEADLINE

// ErrDataInUse means that another server works on the data directory. Stop it, or give another.
var ErrDataInUse = errors.New("server: another server uses this data directory")

// embedded is a NATS server within this process, with JetStream on files in a data directory that
// it alone uses.
type embedded struct {
	nats     *natsserver.Server
	dir      string // of the data
	logger   *slog.Logger
	lock     *os.File
	room     *storage.Room
	accounts *accounts
	lost     map[string]error // by world, why NATS does not have all its streams
}

// startEmbedded starts the NATS server of a configuration; tls and bridge may be nil.
func startEmbedded(
	config *Config, tls *liveTLS, bridge *httpd.Bridge,
) (_ *embedded, err error) {
	e := &embedded{dir: config.Data, logger: config.Logger}
	if e.lock, err = lockDataDir(config.Data); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.room, err = storage.Open(config.Data, config.MinFreeDisk); err == nil {
		err = e.room.Check() // a server that can store nothing does not start
	}
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	if e.accounts, err = newAccounts(config, tls, bridge); err != nil {
		return nil, err
	}
	options := natsOptions(config)
	if err = e.accounts.configure(options); err != nil {
		return nil, err
	}
	ns, err := natsserver.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("server: embedded NATS: %w", err)
	}
	e.accounts.addresses.nats = ns
	if err = e.accounts.admit(ns, config.Access, config.Worlds); err != nil {
		return nil, err
	}
	if err = e.open(ns, config); err != nil {
		return nil, err
	}
	// A killed server may have left messages that are not on the disk yet. They MUST be before
	// anybody sees them.
	if err = e.sync(); err != nil {
		return nil, err
	}
	return e, nil
}

// natsOptions returns the options of the NATS server that do not depend on its accounts.
func natsOptions(config *Config) *natsserver.Options {
	host, port, _ := splitListen("--listen", config.Listen) // checkAddresses has checked it
	if port == 0 {
		port = natsserver.RANDOM_PORT
	}
	options := &natsserver.Options{
		ServerName: "handoffd", Host: host, Port: port,
		JetStream: true, StoreDir: config.Data, JetStreamMaxStore: maxStore,
		SyncAlways: config.Sync == SyncAlways, SyncInterval: config.SyncInterval,
		MaxPayload: maxPayload, MaxConn: config.MaxConnections, MaxPending: maxPending,
		NoFastProducerStall: true, MaxSubs: maxSubscriptions,
		PingInterval: cmp.Or(config.waits.ping, pingInterval), MaxPingsOut: maxPings,
		WriteDeadline: cmp.Or(config.waits.write, writeDeadline),
		NoSigs:        true, DontListen: config.private,
	}
	if config.HTTP != "" {
		// The bridge checks the origin of a request, and does not forward the origin. A request
		// with an origin has bypassed the bridge.
		options.Websocket = natsserver.WebsocketOpts{
			Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoTLS: true,
			HandshakeTimeout: loginTimeout, AllowedOrigins: []string{noOrigin},
		}
	}
	return options
}

// open starts the NATS server, which opens the streams. If open fails, the caller has to call close. A
// stream that NATS cannot open is the failure of its world, and of a server of that world alone.
func (e *embedded) open(ns *natsserver.Server, config *Config) error {
	kept, err := keepStreams(config)
	if err != nil {
		return err
	}
	worlds, err := storedWorlds(config)
	if err != nil {
		return err
	}
	e.lost = map[string]error{}
	dirs := map[string][]streamDir{}
	for _, world := range worlds {
		if err := kept.keepWorld(config, world); err != nil {
			e.lost[world] = err
		}
		dirs[world] = neededDirs(config, world)
	}
	if err = e.mayOpen(config); err == nil {
		err = e.start(ns, config)
	}
	lost := map[string]bool{}
	if err == nil {
		lost, err = e.findLost(ns, dirs)
	}
	if err == nil {
		err = e.mayOpen(config)
	}
	if err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return errors.Join(err, kept.putBack(config.Data, nil))
	}
	return kept.putBack(config.Data, lost)
}

// mayOpen returns the failure of the world of a server that serves one alone.
func (e *embedded) mayOpen(config *Config) error {
	if config.several() {
		return nil
	}
	return e.lost[config.Engine.World]
}

// findLost notes the worlds of which NATS has not loaded all streams. It returns the streams that are
// not loaded.
func (e *embedded) findLost(
	ns *natsserver.Server, dirs map[string][]streamDir,
) (lost map[string]bool, err error) {
	loaded, err := loadedStreams(ns)
	if err != nil {
		return nil, err
	}
	lost = map[string]bool{}
	for world, ofWorld := range dirs {
		if err := requireStreams(loaded, ofWorld); err != nil {
			e.lost[world] = err
		}
		for _, d := range ofWorld {
			lost[d.name] = !loaded[d.name]
		}
	}
	return lost, nil
}

// start starts the NATS server. If start fails, the caller has to call close.
func (e *embedded) start(ns *natsserver.Server, config *Config) error {
	gaveUp := make(chan string, 1)
	logger := newNATSLogger(config.Logger.With("component", "nats"), gaveUp, e.room.Fail)
	ns.SetLoggerV2(logger, false, false, false)
	e.nats = ns
	ns.Start()
	if err := awaitNATS(ns, gaveUp); err != nil {
		return fmt.Errorf("server: NATS on %s with the data directory %s: %w; give others with "+
			"--listen and --data", config.Listen, config.Data, err)
	}
	if e.accounts.operator.file == "" {
		return nil
	}
	return e.accounts.operator.write(ns.Addr().String())
}

// url returns the URL of the NATS server from its own machine.
func (e *embedded) url() string {
	scheme, address, _ := strings.Cut(e.nats.ClientURL(), "://")
	return scheme + "://" + httpd.LocalAddress(address)
}

// awaitNATS waits until a NATS server that was started listens, or gives up.
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

// lockDataDir makes the directory and locks it for this process. The kernel unlocks it when the
// process ends, even by a crash.
func lockDataDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("server: data directory: %w", err)
	}
	path := filepath.Join(dir, "handoffd.lock")
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return nil, fmt.Errorf("server: data directory: %w", err)
	}
	if err := platform.Lock(lock); err != nil {
		lock.Close()
		if errors.Is(err, platform.ErrLocked) {
			return nil, fmt.Errorf("%w: %s: stop that server, or give another directory with --data", ErrDataInUse, dir)
		}
		return nil, fmt.Errorf("server: data directory: lock %s: %w", path, err)
	}
	return lock, nil
}

// close ends the NATS server if it was started, and syncs its files, which NATS does not. Then close
// unlocks the data directory.
func (e *embedded) close() {
	if e.nats != nil {
		e.nats.Shutdown()
		e.nats.WaitForShutdown()
		if err := e.sync(); err != nil {
			e.logger.Error("the data is not known to be on the disk: a loss of power now may cost the "+
				"last commits", "error", err)
		}
	}
	e.lock.Close()
}

// sync syncs all that NATS has stored.
func (e *embedded) sync() error {
	if err := syncTree(e.dir, syncPath); err != nil {
		return fmt.Errorf("server: sync of the data directory: %w", err)
	}
	return nil
}

// syncWorld syncs the directories of a world's streams.
func (e *embedded) syncWorld(world string) error {
	for _, name := range streamsOf(world) {
		path := streamPath(name)
		if _, err := os.Stat(filepath.Join(e.dir, path)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := syncTree(filepath.Join(e.dir, path), syncPath)
		if err == nil {
			err = syncDirs(e.dir, path)
		}
		if err != nil {
			return fmt.Errorf("server: sync of the stream %s: %w", name, err)
		}
	}
	return nil
}

// followStreams syncs the directory of each stream that NATS makes or updates from now on: with
// SyncInterval NATS never syncs a configuration.
func (e *embedded) followStreams(nc *nats.Conn) error {
	for _, change := range []string{
		natsserver.JSAdvisoryStreamCreatedPre, natsserver.JSAdvisoryStreamUpdatedPre,
	} {
		_, err := nc.Subscribe(change+".*", func(msg *nats.Msg) {
			name := strings.TrimPrefix(msg.Subject, change+".")
			if err := syncDirs(e.dir, streamPath(name)); err != nil {
				e.logger.Error("the configuration of a stream is not known to be on the disk",
					"stream", name, "error", err)
			}
		})
		if err != nil {
			return fmt.Errorf("server: changes of streams: %w", err)
		}
	}
	return nil
}

// listening reports whether a client, of whatever account, hears the messages of the world's account
// on a subject.
func (e *embedded) listening(subject string) bool {
	return e.nats.GlobalAccount().Interest(subject) > 0
}

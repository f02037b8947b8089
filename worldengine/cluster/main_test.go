// Package cluster_test holds servers of one world against a cluster of three NATS servers whose
// streams are replicated three times: nodes and engines are processes of their own, are killed,
// stopped and cut off under load, and nothing that was answered may be lost or applied twice.
//
// A node is NATS with the configuration of docs/operators.md. Each gap in service is logged; run it
// with -v and -cluster.rounds to measure. Without that all but TestCluster are skipped.
package cluster_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"worldengine/worldengine"
	"worldengine/worldengine/natstest"
	"worldengine/worldengine/server"
)

var (
	rounds = flag.Int("cluster.rounds", 0,
		"how often each fault is made on each node to measure it; 0 leaves the long tests out")
	keep = flag.String("cluster.logs", "",
		"directory for the logs of nodes and engines; a temporary one")
)

// asRole makes the test binary a node or an engine; roleArgument is its configuration or its URL.
const (
	asRole       = "CLUSTER_TEST_ROLE"
	roleArgument = "CLUSTER_TEST_ARGUMENT"
	roleNode     = "node"
	roleEngine   = "engine"
	serving      = "serving" // lines of an engine's process
	standby      = "standby"
)

func TestMain(m *testing.M) {
	natstest.Collect() // nodes and engines too
	run := map[string]func(string) error{
		roleNode: runNode, roleEngine: runEngine}[os.Getenv(asRole)]
	if run == nil {
		natstest.Main(m, 1)
	}
	if err := run(os.Getenv(roleArgument)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runNode is nats-server with a configuration file; it handles its signals itself.
func runNode(config string) error {
	options, err := natsserver.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	// Its least from a file is 30 s, for as many clients as the tests do not have.
	options.LameDuckDuration, options.LameDuckGracePeriod = 5*time.Second, time.Second
	ns, err := natsserver.NewServer(options)
	if err != nil {
		return err
	}
	ns.ConfigureLogger()
	ns.Start()
	go func() { _ = orphaned(); os.Exit(3) }()
	ns.WaitForShutdown()
	return nil
}

// runEngine is handoffd --nats url --replicas 3.
func runEngine(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	srv, err := server.Start(starting, server.Config{
		NATS: url, Engine: worldengine.Config{Replicas: 3, Bus: true},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	tell := func() {
		fmt.Println(map[bool]string{true: serving, false: standby}[srv.Serving()])
	}
	tell()
	go func() {
		for range srv.Changed() {
			tell()
		}
	}()
	go func() { _ = orphaned(); os.Exit(3) }()
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), server.DefaultDrainTimeout)
	defer cancel()
	return srv.Close(ending)
}

// orphaned returns when the test that started this process is gone.
func orphaned() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

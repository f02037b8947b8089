package plugin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"worldengine/schemas"
	"worldengine/worldengine/plugin"
)

// wall stands for the blocks of a game server.
type wall struct{ blocks map[string]int }

// build applies a command: it decides by type and args, never by the command's text.
func (w *wall) build(_ context.Context, c *plugin.Command) (plugin.Answer, error) {
	if c.Argument() != "wall-perimeter" {
		return plugin.Refuse(c, "UNKNOWN_BUILDING", "This server has no blueprint of it.", false),
			nil
	}
	w.blocks[c.ApplyID] = 64
	return plugin.Done(c), nil
}

// look finds the outcome of a command that was begun before a crash.
func (w *wall) look(_ context.Context, c *plugin.Command) (plugin.Answer, error) {
	if w.blocks[c.ApplyID] == 64 {
		return plugin.Done(c), nil
	}
	return plugin.Refuse(c, "NOT_BUILT", "The blocks are not there.", true), nil
}

// A plugin that builds walls. A request with the schema's example stands for the engine.
func Example() {
	server, nc := exampleServer()
	defer server.Shutdown()
	defer nc.Close()
	directory, err := os.MkdirTemp("", "plugin")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(directory) }()

	memory, err := plugin.OpenFile(filepath.Join(directory, "plugin.memory"), plugin.FileConfig{})
	if err != nil {
		log.Fatal(err)
	}
	w := &wall{blocks: map[string]int{}}
	p, err := plugin.Serve(nc, plugin.Config{
		Towns: []string{"town-threatened"}, Memory: memory, Apply: w.build, Recover: w.look,
		// The example's deadline is of the past, so clocks must not matter here.
		ClockSkew: 100 * 365 * 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}

	for range 2 { // the same applyId: built once, answered twice
		reply, err := nc.Request("worldengine.v1.main.apply.town-threatened", exampleCommand(),
			10*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(reply.Data))
	}
	fmt.Println("walls:", len(w.blocks))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		log.Print(err)
	}
	if err := memory.Close(); err != nil {
		log.Print(err)
	}
	// Output:
	// {"schemaVersion":"command-applied.v1","applyId":"handoff_5feb3aa3bfb4485a11acfc3cf78a89958798e5411a1cc4893273b5092de581ea","status":"applied"}
	// {"schemaVersion":"command-applied.v1","applyId":"handoff_5feb3aa3bfb4485a11acfc3cf78a89958798e5411a1cc4893273b5092de581ea","status":"applied"}
	// walls: 1
}

func exampleServer() (*natsserver.Server, *nats.Conn) {
	server, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	server.Start()
	if !server.ReadyForConnections(testTimeout) {
		log.Fatal("the NATS server does not start")
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		log.Fatal(err)
	}
	return server, nc
}

// exampleCommand is the example that the schema of command-apply.v1 gives.
func exampleCommand() []byte {
	source, err := schemas.Source(schemas.CommandApply)
	if err != nil {
		log.Fatal(err)
	}
	return firstExample(source)
}

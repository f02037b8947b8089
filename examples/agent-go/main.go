// Command agent-go is an agent in its smallest form: it looks at a town, proposes to advance a
// project, hands the proposal off, and prints what became of it.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/handoff"
	"worldengine/schemas"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	url := os.Getenv("NATS_URL")
	if url == "" {
		url = nats.DefaultURL
	}
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()

	// 1. Look at the town.
	reply, err := ask(nc, "town.get", []byte(`{"townId":"town-threatened"}`))
	if err != nil {
		return err
	}
	var town struct {
		TownID, SnapshotHash string
		DecisionEpoch        int64
	}
	if err := json.Unmarshal(reply.Data, &town); err != nil {
		return err
	}

	// 2. Propose. New derives the ids, the command and the requirements, and checks them.
	h, err := handoff.New(handoff.Proposal{
		Type: handoff.AdvanceProject, ActorID: "mayor-1", TownID: town.TownID,
		Priority: 0.8, Reason: "The wall is low.", ReasonTags: []string{"threat"},
		Args:         map[string]string{"projectId": "wall-perimeter"},
		SnapshotHash: town.SnapshotHash, DecisionEpoch: town.DecisionEpoch,
		Preconditions: []handoff.Precondition{
			{Kind: handoff.ProjectExists, TargetID: "wall-perimeter"},
		},
	})
	if err != nil {
		return err
	}
	body, err := h.MarshalWire()
	if err != nil {
		return err
	}

	// 3. Hand it off. ParseResult verifies the result's id.
	reply, err = ask(nc, "handoff", body)
	if err != nil {
		return err
	}
	result, err := handoff.ParseResult(reply.Data, schemas.Limits{})
	if err != nil {
		return err
	}
	fmt.Println(result.Status, result.ReasonCode, result.ResultID, "run", reply.Header.Get("Run-Id"))
	return nil
}

// ask makes a request of the world main. An error reply says what is wrong, and where.
func ask(nc *nats.Conn, verb string, body []byte) (*nats.Msg, error) {
	reply, err := nc.Request("worldengine.v1.main."+verb, body, 5*time.Second)
	if err != nil {
		return nil, err
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		return nil, fmt.Errorf("%s: %s %s", verb, code, reply.Data)
	}
	return reply, nil
}

package server_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/worldengine/approval"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
)

// A proposal waits for so long, then it is asked about anew; an approval holds for as long.
func TestApprovalsExpire(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	srv := start(t, askFor("PROJECT_ADVANCE"), func(c *server.Config) {
		c.Engine.ApprovalTimeout = time.Hour
		c.Engine.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	})
	c := connect(t, srv)
	at := c.put(snapshot("t"), "")
	body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
	id := c.send(body).result.HandoffID
	later.Add(int64(time.Hour))
	require.Empty(t, c.waitingIn("t"))
	f := c.notDecided(decision(id, "approve", "ada"))
	require.Equal(t, "APPROVAL_STALE", f.Code)
	require.Equal(t, handoff.ReasonApprovalRequired, c.send(body).result.ReasonCode)
	require.Equal(t, []string{id}, c.waitingIn("t"), "it waits again")
	c.decide(decision(id, "approve", "ada"))
	later.Add(int64(time.Hour))
	require.Equal(t, handoff.ReasonApprovalRequired, c.send(body).result.ReasonCode)
}

// A town holds so many that wait, and lists them page by page.
func TestApprovalsAreBounded(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE,TOWNSFOLK_TALK")))
	at := c.put(snapshot("t"), "")
	var ids []string
	for i := range approval.MaxOpen {
		p := propose(at, handoff.TalkToTownsfolk, "casual")
		p.Priority, p.ActorID = float64(i)/1000, fmt.Sprint("mayor-", i)
		got := c.send(marshalled(t, p))
		require.Equal(t, handoff.ReasonApprovalRequired, got.result.ReasonCode, i)
		ids = append(ids, got.result.HandoffID)
	}
	full := c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall")))
	require.Equal(t, handoff.ReasonApprovalsFull, full.result.ReasonCode)
	var seen []string
	for after := ""; ; {
		request := map[string]any{"limit": 30}
		if after != "" {
			request["after"] = after
		}
		page := c.approvals(request)
		for _, row := range page.Approvals {
			seen = append(seen, row.HandoffID)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	require.ElementsMatch(t, ids, seen)
	c.decide(decision(ids[0], "reject", "ada"))
	require.Equal(t, handoff.ReasonApprovalRequired,
		c.send(marshalled(t, propose(at, handoff.AdvanceProject, "wall"))).result.ReasonCode)
}

// A denial holds although many others were given behind it, of handoffs that were asked for later.
func TestManyDenialsHold(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("TOWNSFOLK_TALK")))
	at := c.put(snapshot("t"), "")
	var bodies [][]byte
	var ids []string
	for i := range 20 {
		p := propose(at, handoff.TalkToTownsfolk, "casual")
		p.Priority = float64(i) / 1000
		bodies = append(bodies, marshalled(t, p))
		ids = append(ids, c.send(bodies[i]).result.HandoffID)
	}
	for i := range ids {
		c.decide(decision(ids[len(ids)-1-i], "reject", "ada"))
	}
	for _, body := range bodies {
		requireUnapproved(t, c.send(body), handoff.ReasonApprovalDenied, "Denied by ada: because")
	}
}

// A handoff that is too large to wait says so.
func TestALargeHandoffCannotWait(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, askFor("PROJECT_ADVANCE")))
	at := c.put(snapshot("t"), "")
	p := propose(at, handoff.AdvanceProject, "wall")
	p.Reason = strings.Repeat("x", 140<<10)
	require.Equal(t, handoff.ReasonApprovalTooLarge,
		c.send(marshalled(t, p)).result.ReasonCode)
	require.Empty(t, c.waitingIn("t"))
}

// A page takes no more memory than its rows, however large the town is and however much waits.
func TestAPageOfApprovalsIsBounded(t *testing.T) {
	t.Parallel()
	srv := start(t, askFor("MAYOR_ACCEPT_MISSION"))
	c := connect(t, srv)
	s := snapshot("t")
	for i := range 98 {
		s.SideQuests = append(s.SideQuests,
			town.SideQuest{ID: fmt.Sprint("q", i), Title: strings.Repeat("x", 4600)})
	}
	at := c.put(s, "")
	for i := range 20 {
		p := propose(at, handoff.AcceptMission, "q-escort")
		p.Priority = float64(i) / 1000
		require.Equal(t, handoff.ReasonApprovalRequired,
			c.send(marshalled(t, p)).result.ReasonCode)
	}
	page := c.approvals(map[string]any{"limit": 2})
	require.Len(t, page.Approvals, 2)
	require.NotEmpty(t, page.Next)
	require.Less(t, len(mustJSON(t, page)), 16<<10, "large values are left out")
	rest := c.approvals(map[string]any{"townId": "t", "after": page.Next})
	require.Len(t, rest.Approvals, 18)
}

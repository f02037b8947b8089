package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine"
	"worldengine/worldengine/server"
	"worldengine/worldengine/town"
)

// A client that sends a handoff as soon as it is answered has waited for nothing: the run of that
// handoff begins with RunStarted, however busy the machine is. Here each request is submitted
// before the turn of the one before is over.
func TestWhatFollowsAnAnswerIsNotQueued(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*server.Config){
		"by rules": func(*server.Config) {}, "by a plugin": byPlugin,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, change)
			host(t, srv, agree)
			c := connect(t, srv)
			at := c.put(snapshot("t"), "")
			body := marshalled(t, propose(at, handoff.AdvanceProject, "wall"))
			h, err := handoff.Parse(body, schemas.Limits{})
			require.NoError(t, err)

			ends := make(chan worldengine.Answer, 3)
			fails := make(chan error, 4)
			send := func(next func()) {
				fails <- srv.Engine().Submit(h, func(answer worldengine.Answer, err error) {
					next()
					ends <- answer
				})
			}
			send(func() {
				send(func() {
					fails <- srv.Engine().SubmitPut(town.NewState(snapshot("t")), "",
						worldengine.Attributes{}, "", func(worldengine.Town, error) {
							send(func() {})
						})
				})
			})
			for range cap(fails) {
				require.NoError(t, <-fails)
			}
			for _, status := range []handoff.Status{handoff.Executed, handoff.Duplicate,
				handoff.Duplicate} {
				answer := <-ends
				require.Equal(t, status, answer.Result.Status)
				require.Equal(t, "RunStarted", c.story(answer.RunID)[0])
			}
		})
	}
}

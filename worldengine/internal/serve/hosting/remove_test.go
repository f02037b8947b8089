package hosting

import (
	"context"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/kit/layout"
	"worldengine/worldengine/internal/testkit/natstest"
)

// The other servers hear of a removal even if the connection is lost with the bytes of the announcement.
func TestWorlds_AnnounceRemoval(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, &natsserver.Options{})
	link := natstest.NewProxy(t, ns.Addr().String())
	nc := natstest.Dial(t, "nats://"+link.Address(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	other := natstest.Dial(t, ns.ClientURL())
	heard, err := other.SubscribeSync(layout.RemovedSubject("*"))
	require.NoError(t, err)
	require.NoError(t, other.Flush())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	link.Cut(true)
	announced := make(chan error, 1)
	go func() { announced <- (&Worlds{shared: &Shared{Conn: nc}}).announceRemoval(ctx, "w") }()
	require.Eventually(t, func() bool {
		buffered, err := nc.Buffered()
		return err == nil && buffered == 0 && nc.Stats().OutMsgs > 0
	}, time.Minute, 10*time.Millisecond)
	link.Drop()
	link.Cut(false)
	require.NoError(t, <-announced)
	msg, err := heard.NextMsgWithContext(ctx)
	require.NoError(t, err)
	require.Equal(t, "w", string(msg.Data))
}

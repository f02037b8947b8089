package rcon_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/internal/engine/rcon"
)

// Reading never panics or reads beyond the packet, and a packet that was read is written with the same
// bytes.
func FuzzReadPacket(f *testing.F) {
	for _, seed := range []string{
		"", "\x0a", "\x0a\x00\x00\x00", "\x0a\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00",
		"\x0c\x00\x00\x00\xff\xff\xff\xff\x02\x00\x00\x00ok\x00\x00\x0a", "\xff\xff\xff\xff",
		"\xff\xff\xff\x7f",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		_, _, body, wire, err := rcon.ReadPacket(r)
		read := len(data) - r.Len()
		require.LessOrEqual(t, read, 4+10+3*4096)
		if err != nil {
			return
		}
		require.Equal(t, data[:read], wire)
		require.Len(t, wire, 14+len(body))
	})
}

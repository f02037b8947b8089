package rcon_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"worldengine/worldengine/rcon"
)

func TestReadPacket_Pieces(t *testing.T) {
	t.Parallel()
	wire := []byte("\x0e\x00\x00\x00\x01\x02\x00\x00\xff\xff\xff\xfflist\x00\x00and more")
	for _, r := range []io.Reader{
		bytes.NewReader(wire), iotest.OneByteReader(bytes.NewReader(wire)),
		iotest.HalfReader(bytes.NewReader(wire)),
	} {
		id, kind, body, again, err := rcon.ReadPacket(r)
		require.NoError(t, err)
		require.Equal(t, int32(513), id)
		require.Equal(t, int32(-1), kind)
		require.Equal(t, "list", body)
		require.Equal(t, wire[:18], again)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, "and more", string(rest), "no more than the packet is read")
	}
}

func TestReadPacket_Largest(t *testing.T) {
	t.Parallel()
	wire := "\x0a\x30\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00" +
		strings.Repeat("☃", 4096) + "\x00\x00"
	_, _, body, _, err := rcon.ReadPacket(strings.NewReader(wire))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("☃", 4096), body)
	_, _, _, _, err = rcon.ReadPacket(strings.NewReader("\x0b" + wire[1:] + "\x00"))
	require.ErrorIs(t, err, rcon.ErrProtocol)
	_, _, _, _, err = rcon.ReadPacket(iotest.ErrReader(iotest.ErrTimeout))
	require.ErrorIs(t, err, iotest.ErrTimeout, "the reader's error")
}

// Nothing makes it panic or read beyond the packet, and an accepted packet is written as it was
// read.
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

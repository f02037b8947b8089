package rcon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxCommand bounds a command and a password, in bytes. Vanilla reads 1,460 bytes at once and expects
// exactly one packet, of which 14 bytes are not the command.
const MaxCommand = 1446

const (
	// overhead is the length of a packet without its body: id, kind and two zeros.
	overhead = 4 + 4 + 2
	// maxBody bounds the body of a packet: vanilla splits a response after 4,096 UTF-16 units, which
	// have up to three bytes each.
	maxBody = 3 * 4096
)

// The kinds of packets. A login is answered with a packet of kindCommand.
const (
	kindResponse int32 = 0
	kindCommand  int32 = 2
	kindLogin    int32 = 3
)

// refusedID is the id of the answer to a refused login.
const refusedID int32 = -1

// packet is a message of either side. On the wire it has the length of the rest, the id, the kind, the
// body and two zeros; numbers are little-endian.
type packet struct {
	id, kind int32
	body     string
}

func (p packet) wire() []byte {
	data := make([]byte, 0, 4+overhead+len(p.body))
	data = binary.LittleEndian.AppendUint32(data, uint32(overhead+len(p.body)))
	data = binary.LittleEndian.AppendUint32(data, uint32(p.id))
	data = binary.LittleEndian.AppendUint32(data, uint32(p.kind))
	data = append(data, p.body...)
	return append(data, 0, 0)
}

// readPacket reads exactly one packet. The error wraps ErrProtocol or the reader's error.
func readPacket(r io.Reader) (packet, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return packet{}, connectionLost(err)
	}
	length := int32(binary.LittleEndian.Uint32(head[:]))
	if length < overhead || length > overhead+maxBody {
		return packet{}, fmt.Errorf("%w: a packet must have %d to %d bytes, not %d",
			ErrProtocol, overhead, overhead+maxBody, length)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(r, data); err != nil {
		return packet{}, connectionLost(err)
	}
	end := len(data) - 2
	if data[end] != 0 || data[end+1] != 0 {
		return packet{}, fmt.Errorf("%w: a packet must end with two zeros", ErrProtocol)
	}
	return packet{
		id:   int32(binary.LittleEndian.Uint32(data)),
		kind: int32(binary.LittleEndian.Uint32(data[4:])),
		body: string(data[8:end]),
	}, nil
}

func connectionLost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("rcon: the game server ended the connection: %w", err)
	}
	return fmt.Errorf("rcon: the connection is lost: %w", err)
}

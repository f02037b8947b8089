package rcon

import (
	"context"
	"io"
	"time"

	"worldengine/worldengine/internal/core/apply"
)

// Apply logs in for a command and, if begin returns true, sends it.
func (k *Console) Apply(
	ctx context.Context, c *apply.Command, begin func() bool,
) (apply.GameAnswer, error) {
	s, refused, err := k.Login(ctx, c)
	switch {
	case err != nil:
		return apply.GameAnswer{}, err
	case refused != nil:
		return *refused, nil
	case !begin():
		s.Close()
		return apply.GameAnswer{}, apply.ErrUnavailable
	}
	return s.Send(ctx)
}

// Render returns the console commands for c.
func (k *Console) Render(c *apply.Command) ([]string, error) {
	var lines []string
	for _, t := range k.commands[c.Type] {
		line, err := t.render(c, k.cfg.Names)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// Sever cuts the connection.
func (k *Console) Sever() { k.link.close() }

// ReadPacket reads a packet and writes it again.
func ReadPacket(r io.Reader) (id, kind int32, body string, wire []byte, err error) {
	p, err := readPacket(r)
	if err != nil {
		return 0, 0, "", nil, err
	}
	return p.id, p.kind, p.body, p.wire(), nil
}

// SetQuiet sets the time after which a command may have no answer, before the first Login.
func (k *Console) SetQuiet(d time.Duration) { k.quiet = d }

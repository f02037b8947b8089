package rcon

import (
	"context"
	"io"

	"worldengine/worldengine/apply"
)

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

// Apply applies a command in a session of its own.
func (k *Console) Apply(ctx context.Context, c *apply.Command) (apply.Answer, error) {
	s, err := k.Begin(ctx, c)
	if err != nil {
		return apply.Answer{}, err
	}
	defer s.End()
	return s.Apply(ctx)
}

// ApplySevered is Apply, with the connection cut between the login and the first command.
func (k *Console) ApplySevered(ctx context.Context, c *apply.Command) (apply.Answer, error) {
	if err := k.connect(ctx); err != nil {
		return apply.Answer{}, err
	}
	k.link.close()
	lines, err := k.Render(c)
	if err != nil {
		return apply.Answer{}, err
	}
	return k.run(ctx, c, k.commands[c.Type], lines)
}

// ReadPacket reads a packet and writes it again.
func ReadPacket(r io.Reader) (id, kind int32, body string, wire []byte, err error) {
	p, err := readPacket(r)
	if err != nil {
		return 0, 0, "", nil, err
	}
	return p.id, p.kind, p.body, p.wire(), nil
}

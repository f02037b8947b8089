package server

import (
	"context"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/serve/mcphttp"
	"worldengine/worldengine/internal/serve/passwords"
)

// openModels lets hosts of language models sign in, once HTTP leads them here.
func (s *Server) openModels(context.Context) error {
	if s.http == nil {
		return nil
	}
	config := mcphttp.Config{
		Worlds: func() (worlds []mcphttp.World) {
			for _, h := range s.worlds.all() {
				worlds = append(worlds, h)
			}
			return worlds
		},
		Connect: func(inbox string) (*nats.Conn, error) {
			if inbox == "" {
				return s.connect(modelling, nil)
			}
			return s.connect(modelling, nil, nats.CustomInboxPrefix(inbox))
		},
		Bridge: s.bridge, Passwords: passwords.New(), Access: s.config.Access,
		Directory: s.config.Service.Access, Logger: s.config.Logger,
	}
	if s.embedded != nil {
		config.Passwords = s.embedded.Passwords()
	}
	s.models = mcphttp.New(config)
	return nil
}

func (s *Server) closeModels(ctx context.Context) error {
	if s.models == nil {
		return nil
	}
	return s.models.Close(ctx)
}

// Unserved returns why this server does not serve the world now; nil if it does.
func (h *hosted) Unserved() error {
	if h.serving.Load() != nil {
		return nil
	}
	return *h.unserved.Load()
}

package server

import (
	"context"
	"log/slog"
	"time"

	"worldengine/worldengine/internal/core/placement"
	"worldengine/worldengine/internal/serve/sharing"
)

// startPlacer starts the placer of a server unless no other server can join.
func (s *Server) startPlacer(context.Context) (err error) {
	if s.embedded != nil && !s.config.Open {
		return nil
	}
	service := &s.config.Service
	config := sharing.Config{
		Conn: s.conn, HearOnly: s.embedded != nil,
		Self: placement.Announcement{ID: service.ID, Name: service.Name, Version: service.Version, URL: s.HTTP(),
			All: s.config.Worlds.All},
		All: func() (worlds []sharing.World) {
			for _, h := range s.worlds.all() {
				worlds = append(worlds, h)
			}
			return worlds
		},
		World: func(name string) sharing.World {
			if h := s.worlds.get(name); h != nil {
				return h
			}
			return nil
		},
	}
	s.placer, err = sharing.Start(config)
	return err
}

func (s *Server) stopPlacer(context.Context) error {
	if s.placer != nil {
		s.placer.Close()
	}
	return nil
}

// Name, Logger and the methods below implement sharing.World.
func (h *hosted) Name() string { return h.world }

func (h *hosted) Logger() *slog.Logger { return h.logger }

// Serving reports whether this server serves the world, and has requests in hand.
func (h *hosted) Serving() (serving, busy bool) {
	t := h.serving.Load()
	return t != nil, t != nil && t.engine.Busy()
}

// Indexed returns how far this server has indexed the log; known is false if it has no index.
func (h *hosted) Indexed() (seq uint64, known bool) {
	if t := h.serving.Load(); t != nil {
		seq, _ = t.engine.IndexProgress()
		return seq, true
	}
	if x := h.index.Load(); x != nil {
		return x.Position(), true
	}
	return 0, false
}

// Act has the goroutine that stands by or serves carry out a decision, unless it is at work.
func (h *hosted) Act(action placement.Action) bool {
	select {
	case h.actions <- action:
		return true
	default:
		return false
	}
}

// NoteEnd notes how far the writer has indexed the log.
func (h *hosted) NoteEnd(end uint64) {
	if x := h.index.Load(); x == nil || x.Position() < end {
		select {
		case h.behind <- struct{}{}:
		default:
		}
	} else {
		h.synced.Store(time.Now().UnixMilli())
	}
}

// Follows reports whether this server's index is close to the end of the log.
func (h *hosted) Follows() bool {
	return h.index.Load() != nil && time.Since(time.UnixMilli(h.synced.Load())) < syncAge
}

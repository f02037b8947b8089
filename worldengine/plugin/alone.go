package plugin

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/kit/backoff"
)

// exclusivity knows whether another plugin may host a town of this one. Another one may have come whenever the
// connection was lost.
type exclusivity struct {
	checked   atomic.Uint64 // how often the connection had come back when no other plugin was found
	aside     atomic.Bool   // another one was found, and has not ended
	watching  sync.WaitGroup
	answering []*nats.Subscription // to questions of other plugins; none while aside
}

// asideInterval is the mean pause between two questions whether the other plugin is still there. It is random,
// so that two plugins do not find each other for ever.
const asideInterval = 2 * time.Second

// watchExclusivity asks who hosts the towns whenever the connection has come back, until Close.
func (p *Plugin) watchExclusivity() {
	if p.config.Beside {
		return
	}
	back := p.nc.StatusChanged(nats.CONNECTED)
	p.exclusivity.watching.Go(func() {
		defer p.nc.RemoveStatusListener(back)
		for {
			select {
			case <-p.ctx.Done():
				return
			case <-back:
				p.awaitExclusivity()
			}
		}
	})
}

// awaitExclusivity returns when no other plugin hosts a town of this one, or nobody can say so.
func (p *Plugin) awaitExclusivity() {
	for {
		reconnects := p.nc.Stats().Reconnects
		others, err := OtherHosts(p.ctx, p.nc, p.config.World, p.config.Towns...)
		switch {
		case p.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return
		case len(others) > 0:
			p.stepAside(others[0])
			if backoff.Sleep(p.ctx, asideInterval/2+rand.N(asideInterval)) != nil {
				return
			}
			continue
		case err != nil:
			p.config.Logger.Warn("it is not known whether another plugin hosts a town of this one", "error", err)
		}
		if p.exclusivity.answering == nil { // of two that came at the same moment, at least one finds the other now
			p.exclusivity.answering, err = answerHosts(p.nc, p.config.World, p.config.Towns...)
			if err == nil {
				continue
			}
			p.config.Logger.Warn("other plugins do not learn that this one hosts its towns", "error", err)
		}
		p.exclusivity.checked.Store(reconnects)
		if p.exclusivity.aside.Swap(false) {
			p.config.Logger.Warn("the other plugin has ended: this one answers commands again")
		}
		return
	}
}

// stepAside stops answering commands and questions, since another plugin hosts a town.
func (p *Plugin) stepAside(other Host) {
	p.endAnswering()
	if !p.exclusivity.aside.Swap(true) {
		p.config.Logger.Error("another plugin hosts a town of this one, so this one answers no command until "+
			"the other one ends: end one of the two", "town", other.TownID, "other", other.Name)
	}
}

func (p *Plugin) endAnswering() {
	for _, sub := range p.exclusivity.answering {
		_ = sub.Unsubscribe() // fails if the connection is closed
	}
	p.exclusivity.answering = nil
}

// admitIfExclusive is admit for a plugin that knows it is the only one. Until then its answer is busy, and beside
// another plugin it has none.
func (p *Plugin) admitIfExclusive(r request) (answer Answer, known bool) {
	switch {
	case p.config.Beside || p.nc.Stats().Reconnects == p.exclusivity.checked.Load() && !p.exclusivity.aside.Load():
		return p.admit(r)
	case p.exclusivity.aside.Load():
		p.config.Logger.Warn("a command is left to the other plugin", "applyId", r.command.ApplyID)
		return Answer{}, false
	}
	return Later(r.command, Busy, p.config.RetryAfter), true
}

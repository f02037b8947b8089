package service

import (
	"cmp"

	"github.com/nats-io/nats.go"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/runs"
)

// maxAppend is the largest run.append in bytes that is read.
const maxAppend = 1 << 20

// takeAppend returns the handler of run.append: a worker parses it and leaves it to the engine, and
// the answer goes out when the events are persisted.
func (s *Service) takeAppend() func(*incoming) {
	p := s.addPool(s.changes, s.parsers())
	return func(r *incoming) {
		reply, data, rights := r.reply, r.data, r.rights
		if len(data) > maxAppend {
			s.failOnArrival(reply, tooLarge(len(data), maxAppend))
			return
		}
		bytes := requestBytes + changeWeight*int64(len(data))
		held := s.admit(r, p.slots, s.townOf(rights, data), bytes)
		s.enqueue(p, held, reply, func() error {
			townID, writes, err := runevents.ParseAppend(data, schemas.Limits{Bytes: maxAppend})
			if err != nil {
				return err
			}
			if err := cmp.Or(rights.Town(townID), rights.Read(townID)); err != nil {
				return err
			}
			from := runs.Sender{
				Name: cmp.Or(s.actorOf(rights), runs.Anyone), MayRead: rights.ReadToken,
			}
			return s.engine.Runs().Submit(from, townID, writes,
				func(appended []runevents.Appended, err error) {
					s.answerAppend(held, reply, appended, err)
				})
		})
	}
}

func (s *Service) answerAppend(
	held *slot, to replyTo, appended []runevents.Appended, err error,
) {
	s.finish(held, to, func() (*nats.Msg, error) {
		if err != nil {
			return nil, err
		}
		body, err := reply(struct {
			Appended []runevents.Appended `json:"appended"`
		}{appended})
		return &nats.Msg{Data: body}, err
	})
}

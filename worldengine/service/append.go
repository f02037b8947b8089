package service

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"worldengine/runevents"
	"worldengine/schemas"
)

// maxAppend is the largest run.append in bytes that is read.
const maxAppend = 1 << 20

// takeAppend hands a run.append to a reader, who reads it and leaves it to the engine; the answer
// goes out when the events are persisted.
func (s *Service) takeAppend() func(micro.Request) {
	l := s.addLane(s.changes, s.parsers())
	return func(r micro.Request) {
		reply, data := r.Reply(), r.Data()
		if len(data) > maxAppend {
			s.fail(reply, tooLarge(len(data), maxAppend))
			return
		}
		rights := s.rightsOf(r)
		p := s.admit(r, l.places, s.townOf(rights, data), requestBytes+changeWeight*int64(len(data)))
		s.enqueue(l, p, reply, func() error {
			townID, writes, err := runevents.ParseAppend(data, schemas.Limits{Bytes: maxAppend})
			if err != nil {
				return err
			}
			if err := rights.Town(townID); err != nil {
				return err
			}
			return s.engine.SubmitEvents(townID, writes, func(appended []runevents.Appended, err error) {
				s.answerAppend(p, reply, appended, err)
			})
		})
	}
}

func (s *Service) answerAppend(p *place, replyTo string, appended []runevents.Appended, err error) {
	s.conclude(p, replyTo, func() (*nats.Msg, error) {
		if err != nil {
			return nil, err
		}
		body, err := reply(struct {
			Appended []runevents.Appended `json:"appended"`
		}{appended})
		return &nats.Msg{Data: body}, err
	})
}

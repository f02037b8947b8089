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
func (s *Service) takeAppend(r micro.Request) {
	reply, data := r.Reply(), r.Data()
	if len(data) > maxAppend {
		s.fail(reply, tooLarge(len(data), maxAppend))
		return
	}
	rights := s.rightsOf(r)
	s.enqueue(reply, func() error {
		townID, writes, err := runevents.ParseAppend(data, schemas.Limits{Bytes: maxAppend})
		if err != nil {
			return err
		}
		if err := rights.Town(townID); err != nil {
			return err
		}
		return s.engine.SubmitEvents(townID, writes, func(appended []runevents.Appended, err error) {
			s.answerAppend(reply, appended, err)
		})
	})
}

func (s *Service) answerAppend(replyTo string, appended []runevents.Appended, err error) {
	var body []byte
	if err == nil {
		body, err = reply(struct {
			Appended []runevents.Appended `json:"appended"`
		}{appended})
	}
	if err != nil {
		s.fail(replyTo, err)
		return
	}
	s.respond(&nats.Msg{Subject: replyTo, Data: body})
}

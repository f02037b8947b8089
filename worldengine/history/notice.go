package history

import (
	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"

	"worldengine/runevents"
	"worldengine/worldengine/commitlog"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// Announce returns a function that does what read does, and publishes the notice of each message of
// the log that changes a town and has no run, so that no run event says it. publish must not block.
// A notice may be lost, and may be published again, by this server and by others: who hears it goes
// by its revision.
func Announce(
	world string, publish func(subject string, data []byte) error,
	read func(jetstream.Msg) jetstream.Msg,
) func(jetstream.Msg) jetstream.Msg {
	return func(msg jetstream.Msg) jetstream.Msg {
		if change, is := noticeOf(msg); is {
			if data, err := json.Marshal(change); err == nil {
				_ = publish(wire.ChangesSubject(world, wire.TownToken(change.TownID)), data)
			}
		}
		return read(msg)
	}
}

// noticeOf returns what town.history has of the change of a message, from its headers; is is false
// where a run event says it, and where the message is no change of a town.
func noticeOf(msg jetstream.Msg) (change messages.Change, is bool) {
	header := msg.Headers()
	cause := commitlog.Kind(header.Get(wire.KindHeader))
	if header.Get(wire.RunIDHeader) != "" || !cause.OfTown() {
		return change, false
	}
	meta, err := msg.Metadata()
	if err != nil {
		return change, false
	}
	if change.TownID, err = wire.PercentDecode(header.Get(wire.TownHeader)); err != nil {
		return change, false
	}
	if change.ActorID, err = wire.PercentDecode(header.Get(wire.ActorHeader)); err != nil {
		return change, false
	}
	if change.TownID == "" { // the pause of the world, or an id that is too long for a header
		rec, err := commitlog.ReadRecord(msg.Data())
		if err != nil || rec.TownID == "" {
			return change, false
		}
		change.TownID = rec.TownID
	}
	change.Revision.Revision, change.At = meta.Sequence.Stream, runevents.Timestamp(commitlog.AtOr(msg.Headers(), meta.Timestamp))
	change.Cause, change.Epoch = string(cause), commitlog.EpochOf(header)
	change.Hash = header.Get(wire.HashHeader)
	return change, true
}

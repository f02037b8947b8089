package client

import (
	"context"
	"iter"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// ListedWorld is a world of a list.
type ListedWorld = messages.ListedWorld

// Worlds iterates over the worlds of the NATS that the user may use, in the order of their names.
func (c *Client) Worlds(ctx context.Context) iter.Seq2[ListedWorld, error] {
	return rows("", func(after string) ([]ListedWorld, string, error) {
		page, err := ask[messages.Worlds](ctx, c, wire.WorldsList, messages.WorldsList{After: after})
		return page.Worlds, page.Next, err
	})
}

// CreateWorld makes a world, with settings by their names, and returns all its settings. The request is
// not repeated if it may have been carried out: in that case list the worlds.
func (c *Client) CreateWorld(
	ctx context.Context, world string, settings map[string]string,
) (map[string]string, error) {
	made, err := ask[messages.WorldCreated](ctx, c, wire.WorldsCreate,
		messages.WorldsCreate{World: world, Settings: settings})
	return made.Settings, err
}

// RemoveWorld deletes a world with all that it has stored. Only a backup brings it back. Without force
// a world that is in use is not removed.
func (c *Client) RemoveWorld(ctx context.Context, world string, force bool) error {
	_, err := ask[messages.WorldRemoved](ctx, c, wire.WorldsRemove,
		messages.WorldsRemove{World: world, Force: force})
	return err
}

// worldsTimeout bounds how long a client that got no answer asks whether its world exists.
const worldsTimeout = 3 * time.Second

// noResponders returns the error of a request that no server received: there is no such world, or it
// is not served, as far as a server of the NATS can say.
func (c *Client) noResponders(err error, verb wire.Verb) error {
	none := unavailable(codeNoResponders, err, "no server answers %s for the world %q on this NATS: "+
		"start handoffd with this world, or use the world that it serves", verb, c.World)
	if verb.ManagesWorlds() {
		return unavailable(codeNoResponders, err, "no server answers %s on this NATS: start handoffd, of "+
			"a version that hosts several worlds", verb)
	}
	ctx, cancel := context.WithTimeout(context.Background(), worldsTimeout)
	defer cancel()
	question, _ := json.Marshal(messages.WorldsList{World: c.World}) // it cannot fail
	answer, err := c.Conn.RequestWithContext(ctx, wire.Subject(c.World, wire.WorldsList), question)
	if err != nil || replyErrorOf(answer) != nil {
		return none
	}
	var list messages.Worlds
	if err := json.Unmarshal(answer.Data, &list); err != nil {
		return none
	}
	return whyUnserved(c.World, list.Worlds, none)
}

// whyUnserved returns the error of a world that does not answer, by the list of worlds of its name.
func whyUnserved(world string, list []ListedWorld, none *UnavailableError) error {
	code, text := wire.CodeUnknownWorld, "there is no world "+world+" on this NATS: use one that "+
		"handoffctl world list has, or make it with handoffctl world create "+world
	if len(list) > 0 {
		if list[0].State != messages.WorldUnserved {
			return none
		}
		code, text = wire.CodeWorldNotServed, "the world "+world+" is not served: "+list[0].Why
	}
	return &ReplyError{Status: protocol.LookupError(code).Status, Code: string(code), Message: text}
}

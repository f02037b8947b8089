package messages

// WorldsList asks for a page of the list of worlds, in the order of their names.
//
//schema:worlds-list-request.v1
//schema:example {}
//schema:example {"world": "survival"}
//schema:example {"after": "lobby", "limit": 20}
type WorldsList struct {
	// Start after this name: next of the previous page. If left out, the list begins at the first
	// world.
	After string `json:"after,omitzero"`
	// Only the world of this name.
	World string `json:"world,omitzero" schema:"id"`
	// The largest number of worlds to answer with; 50 if left out.
	Limit int `json:"limit,omitzero" schema:"min=1,max=200"`
}

// Worlds is a page of the list of worlds.
//
//schema:worlds-list-reply.v1
//schema:example {"worlds": [{"world": "lobby", "state": "unserved", "why": "no server serves it"}], "total": 1}
type Worlds struct {
	// The worlds of this page.
	Worlds []ListedWorld `json:"worlds"`
	// The value of after for the next page; left out on the last page.
	Next string `json:"next,omitzero"`
	// How many worlds the user may use.
	Total int `json:"total"`
}

// The states of a world in a list.
const (
	WorldServed   = "served"
	WorldStandby  = "standby"
	WorldUnserved = "unserved"
)

// ListedWorld is a world in a list.
type ListedWorld struct {
	// The name of the world.
	World string `json:"world"`
	// served if its writer answers, standby if no writer answers but a server is about to take over,
	// else unserved.
	State string `json:"state" schema:"one=served|standby|unserved"`
	// Why the world is not served, and what to do, for who may read alerts; left out if it is served.
	Why string `json:"why,omitzero"`
	// The server that serves the world; left out if none does, or if the user may not read alerts.
	Writer *WorldServer `json:"writer,omitzero"`
	// How many towns the world has. This and the figures below are left out if the world is not
	// served, or if the user may not read all of its towns.
	Towns *int `json:"towns,omitzero"`
	// How many handoffs ended in the last whole minute.
	HandoffsPerMinute *int64 `json:"handoffsPerMinute,omitzero"`
	// How many requests wait, or are in hand.
	Waiting *int `json:"waiting,omitzero"`
	// How many alerts are open; left out too if the user may not read alerts.
	Alerts *int `json:"alerts,omitzero"`
	// Whether the world is paused.
	Paused bool `json:"paused,omitzero"`
}

// WorldServer names a server.
type WorldServer struct {
	// Differs from server to server.
	ID string `json:"id"`
	// The host, the process and the addresses of the server.
	Name string `json:"name"`
	// The version of the program.
	Version string `json:"version"`
}

// WorldsCreate makes a world. Its towns are put afterwards.
//
//schema:worlds-create-request.v1
//schema:example {"world": "survival"}
//schema:example {"world": "survival", "settings": {"apply": "plugin", "history-per-town": "20000"}}
type WorldsCreate struct {
	// The name of the world: 1 to 64 of A-Z a-z 0-9 _ -.
	World string `json:"world" schema:"world"`
	// The settings of the world by name, as handoffctl world settings has them; the server's for new
	// worlds if left out.
	Settings map[string]string `json:"settings,omitempty"`
}

// WorldCreated is the reply of worlds.create.
//
//schema:worlds-create-reply.v1
//schema:example {"world": "survival", "settings": {"apply": "plugin", "history-per-town": "20000"}}
type WorldCreated struct {
	// The name of the world.
	World string `json:"world"`
	// The settings of the world by name.
	Settings map[string]string `json:"settings"`
}

// WorldsRemove deletes a world: its towns, runs, results, events and alerts. Only a backup brings it
// back.
//
//schema:worlds-remove-request.v1
//schema:example {"world": "survival"}
//schema:example {"world": "survival", "force": true}
type WorldsRemove struct {
	// The name of the world.
	World string `json:"world" schema:"world"`
	// Whether to remove the world even if its requests are in hand, or plugins of it are connected.
	Force bool `json:"force,omitzero"`
}

// WorldRemoved is the reply of worlds.remove.
//
//schema:worlds-remove-reply.v1
//schema:example {"world": "survival"}
type WorldRemoved struct {
	// The name of the world.
	World string `json:"world"`
}

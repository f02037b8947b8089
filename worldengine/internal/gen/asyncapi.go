package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"worldengine/runevents"
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/protocol"
	"worldengine/worldengine/wire"
)

// tree is a JSON object.
type tree = map[string]any

// asyncAPI writes the AsyncAPI 3.0 document of a world: its verbs, events, alerts, the requests to plugins, and
// their errors. The document describes the server: it receives requests of verbs, and sends commands,
// commits, run events and alerts.
func (g *generator) asyncAPI() {
	d := &document{g: g, channels: tree{}, operations: tree{}, messages: tree{}, inbox: tree{}}
	for _, e := range protocol.Errors() {
		d.errorMessage(&e)
	}
	for _, verb := range protocol.Verbs() {
		d.verb(verb)
	}
	d.plugins()
	d.events()
	d.channels["inbox"] = tree{
		"address":     nil,
		"description": "The reply subject that a request names: an inbox of its sender, _INBOX.… or, of a user, _INBOX_<user>.….",
		"messages":    d.inbox,
	}
	text := must(json.Marshal(tree{
		"asyncapi": "3.0.0",
		"id":       "urn:worldengine:v1",
		"info": tree{
			"title":   "worldengine",
			"version": "1.0.0",
			"description": "A transaction server for AI agents in Minecraft towns, on NATS. Written from the server's " +
				"side: it receives the requests of verbs, and sends commands, events and alerts. A request is a " +
				"NATS message with a reply subject; docs/contracts.md has the rules that no schema shows.",
			"tags": tags,
		},
		"defaultContentType": "application/json",
		"servers":            servers,
		"channels":           d.channels,
		"operations":         d.operations,
		"components": tree{
			"messages":        d.messages,
			"parameters":      parameters,
			"schemas":         g.payloads(),
			"securitySchemes": securitySchemes,
		},
	}, json.Deterministic(true), jsontext.WithIndent("  ")))
	g.files["schemas/asyncapi.json"] = string(text) + "\n"
}

var tags = []tree{
	{"name": "verbs", "description": "Requests of clients: worldengine.v1.<world>.<verb>."},
	{"name": "events", "description": "Commits, run events and alerts, for everybody who may read."},
	{"name": "plugins", "description": "Commands for the plugin of a game server."},
}

var servers = tree{
	"nats": tree{
		"host": "127.0.0.1:4222", "protocol": "nats",
		"description": "NATS itself. With an access file users are required, and TLS if it says so.",
		"security":    security,
	},
	"websocket": tree{
		"host": "127.0.0.1:8480", "pathname": "/nats", "protocol": "ws",
		"description": "The same protocol of NATS over WebSocket, for browsers.",
		"security":    security,
	},
}

var security = []tree{reference("securitySchemes", "user"), reference("securitySchemes", "nkey"),
	reference("securitySchemes", "certificate")}

var securitySchemes = tree{
	"user": tree{"type": "userPassword",
		"description": "A user of the access file. Its inboxes begin with _INBOX_<user>."},
	"nkey": tree{"type": "asymmetricEncryption",
		"description": "A user whose access file has an NKey: the client signs NATS's challenge."},
	"certificate": tree{"type": "X509",
		"description": "Beside the user, a client certificate, if the access file has a clientCAFile."},
}

var parameters = tree{
	"world": tree{"default": wire.DefaultWorld, "examples": []string{wire.DefaultWorld, "survival"},
		"description": "The name of the world: 1 to 64 of A-Z a-z 0-9 _ -."},
	"townToken": tree{"examples": []string{wire.TownToken("town-threatened"), wire.TownToken("Town 1")},
		"description": "The UTF-8 of the town's id with every byte outside A-Z a-z 0-9 _ - as % and two upper-case " +
			"hex digits; if that is longer than 128, = and the lower-case hex SHA-256 of the id. A commit of " +
			"no town has =world. A subscriber may put * for all."},
	"runToken": tree{"examples": []string{"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a"},
		"description": "The run's id, encoded as a town's."},
	"code": tree{"examples": []runevents.AlertCode{runevents.PluginAbsent},
		"description": "The code of the alert. A subscriber may put * for all.", "enum": alertCodes()},
}

// document collects the channels, operations and messages.
type document struct {
	g                                     *generator
	channels, operations, messages, inbox tree
}

// message adds a message of a payload, with the examples of the payload's schema, and returns its reference.
// Headers may be nil.
func (d *document) message(name, title string, payload schemas.Name, headers []protocol.HeaderSpec) tree {
	source := d.g.payload(payload)
	message := tree{"name": name, "title": title, "summary": source["description"],
		"payload": reference("schemas", string(payload)), "headers": headersOf(nil, headers)}
	var examples []tree
	for i, example := range source["examples"].([]any) {
		examples = append(examples, tree{"name": fmt.Sprint(payload, " ", i+1), "payload": example})
	}
	message["examples"] = examples
	d.messages[name] = message
	return reference("messages", name)
}

// reply lets a message be one on the inbox, and returns its reference there.
func (d *document) reply(name string) tree {
	d.inbox[name] = reference("messages", name)
	return pointer("channels", "inbox", "messages", name)
}

// verb adds the channel and the operation of a verb.
func (d *document) verb(verb wire.Verb) {
	name, spec := string(verb), protocol.LookupVerb(verb)
	request, reply := schemas.RequestOf(name), schemas.ReplyOf(name)
	asked := d.message(name+".request", "Request of "+name, request,
		headersFor(verb, func(h protocol.HeaderSpec) []wire.Verb { return h.Requests }))
	answers := headersFor(verb, func(h protocol.HeaderSpec) []wire.Verb { return h.Replies })
	d.message(name+".reply", "Reply of "+name, reply, answers)
	replies := []tree{d.reply(name + ".reply")}
	if reply == schemas.ExecutionResult {
		d.message(name+".reply.revision-1", "Reply of "+name+" in revision 1", schemas.ExecutionResult1, answers)
		replies = append(replies, d.reply(name+".reply.revision-1"))
	}
	for _, e := range protocol.Errors() {
		if e.May(verb) {
			replies = append(replies, d.reply(errorName(e.Code)))
		}
	}
	d.channel(name, wire.Subject("{world}", verb), tree{"request": asked}, "world")
	d.operations[name] = tree{
		"action": "receive", "channel": pointer("channels", name),
		"summary":  d.messages[name+".request"].(tree)["summary"],
		"messages": []tree{pointer("channels", name, "messages", "request")},
		"reply":    tree{"channel": pointer("channels", "inbox"), "messages": replies},
		"tags":     []tree{{"name": "verbs"}},
		"x-roles":  spec.Roles,
		// A repeated request can be refused because the first one was carried out: look before asking again.
		"x-changes": spec.NonIdempotent,
	}
}

// plugins adds the commands for plugins, and the question who hosts a town.
func (d *document) plugins() {
	trace := headersFor(wire.Handoff, func(h protocol.HeaderSpec) []wire.Verb {
		if strings.HasPrefix(h.Name, "trace") {
			return h.Requests
		}
		return nil
	})
	d.message("apply.answer", "Answer of a plugin", schemas.CommandApplied, nil)
	d.channel("apply", wire.ApplySubject("{world}", "{townToken}"), tree{
		"command": d.message("apply.command", "Command for a plugin", schemas.CommandApply, trace),
	}, "world", "townToken")
	d.operations["apply"] = tree{
		"action": "send", "channel": pointer("channels", "apply"),
		"summary":  "The server asks the plugin that hosts a town to apply a command (docs/plugin-protocol.md).",
		"messages": []tree{pointer("channels", "apply", "messages", "command")},
		"reply": tree{"channel": pointer("channels", "inbox"),
			"messages": []tree{d.reply("apply.answer")}},
		"tags": []tree{{"name": "plugins"}}, "x-roles": []wire.Role{wire.Plugin},
	}
	d.messages["hosts.question"] = tree{
		"name": "hosts.question", "title": "Who hosts the town?",
		"summary": "A plugin asks the others; the server neither asks nor answers. Its answer is hosts.answer.",
		"headers": headersOf([]protocol.HeaderSpec{{Name: wire.AskerHeader, Pattern: "^.+$", Example: "plugin-1",
			Means: "A text of the asker's own: it does not answer itself."}}, nil),
		"payload": tree{}, "examples": []tree{{"name": "a question",
			"headers": tree{wire.AskerHeader: "plugin-1"}, "payload": tree{}}},
	}
	d.messages["hosts.answer"] = tree{
		"name": "hosts.answer", "title": "I host the town", "summary": "Another plugin hosts the town.",
		"payload": tree{"type": "object", "properties": tree{"name": tree{"type": "string",
			"description": "The name of that plugin's connection."}}},
		"examples": []tree{{"name": "an answer", "payload": tree{"name": "minecraft"}}},
	}
	d.reply("hosts.answer")
	d.channel("hosts", wire.HostsSubject("{world}", "{townToken}"), tree{
		"question": reference("messages", "hosts.question"),
	}, "world", "townToken")
}

// events adds the messages that the server publishes for readers.
func (d *document) events() {
	d.sends("events", wire.EventsSubject("{world}", "{townToken}"),
		"Each commit, once, as a hint that may be missed; event.list misses none.", tree{
			"commit": d.message("events.commit", "Commit", schemas.Commit, nil),
		}, "world", "townToken")
	d.sends("alerts", wire.AlertSubject("{world}", "{code}"), "Each alert, for operators and observers.", tree{
		"alert": d.message("alerts.alert", "Alert", "alert.v1", nil),
	}, "world", "code")
	types := tree{}
	for _, t := range runevents.EventTypes(0) {
		types[string(t)] = d.runEvent(t)
	}
	d.sends("runevents", wire.EventSubject("{world}", "{townToken}", "{runToken}"),
		"Each run event, with --bus jetstream, also in the stream WORLD_<world>_RUNEVENTS.", types,
		"world", "townToken", "runToken")
}

// runEvent adds the message of a run event of a type, and returns its reference.
func (d *document) runEvent(t runevents.EventType) tree {
	payload, record := d.g.payload(schemas.Name(t)), d.g.payload(schemas.RunEventRecord)
	example := record["examples"].([]any)[0].(tree)
	event := maps.Clone(example)
	event["eventType"], event["payload"] = string(t), payload["examples"].([]any)[0]
	delete(event, "stepId")
	if t.IsStepLevel() {
		event["stepId"] = "apply"
	}
	headers := []protocol.HeaderSpec{{Name: wire.EventTypeHeader, Pattern: "^" + string(t) + "$",
		Example: string(t), Means: "The eventType."}}
	name := "runevents." + string(t)
	d.messages[name] = tree{
		"name": name, "title": string(t), "summary": payload["description"], "headers": headersOf(headers, nil),
		"payload": tree{"allOf": []tree{reference("schemas", string(schemas.RunEventRecord)), {
			"properties": tree{"eventType": tree{"const": t}, "payload": reference("schemas", string(t))},
		}}},
		"examples": []tree{{"name": string(t), "headers": tree{wire.EventTypeHeader: t}, "payload": event}},
	}
	return reference("messages", name)
}

// sends adds a channel on which the server publishes messages.
func (d *document) sends(name, address, summary string, messages tree, variables ...string) {
	d.channel(name, address, messages, variables...)
	d.operations[name] = tree{"action": "send", "channel": pointer("channels", name), "summary": summary,
		"tags": []tree{{"name": "events"}}}
}

func (d *document) channel(name, address string, messages tree, variables ...string) {
	of := tree{}
	for _, variable := range variables {
		if strings.Contains(address, "{"+variable+"}") {
			of[variable] = reference("parameters", variable)
		}
	}
	d.channels[name] = tree{"address": address, "messages": messages, "parameters": of}
}

func errorName(code wire.Code) string { return "error." + string(code) }

// errorMessage adds the error reply of a code, which carries the remedy.
func (d *document) errorMessage(e *protocol.ErrorSpec) {
	status, remedy, name := strconv.Itoa(e.Status), plain(e.When), errorName(e.Code)
	text := e.Text
	if text == "" {
		text = remedy
	}
	headers := []protocol.HeaderSpec{
		{Name: wire.ErrorCodeHeader, Pattern: "^" + status + "$", Example: status, Means: "The status."},
		{Name: wire.ErrorHeader, Pattern: "^[ -~]+$", Example: text, Means: "The message, in printable ASCII."},
	}
	if e.RetryAfter > 0 {
		headers = append(headers, protocol.HeaderSpec{Name: wire.RetryAfterHeader, Pattern: "^[0-9]+$",
			Example: strconv.FormatInt(e.RetryAfter.Milliseconds(), 10),
			Means:   "How many milliseconds to wait before the same bytes are sent again."})
	}
	sent := tree{}
	for _, h := range headers {
		sent[h.Name] = h.Example
	}
	var optional []protocol.HeaderSpec
	if slices.Contains(e.Verbs, wire.Handoff) || e.Verbs == nil {
		optional = []protocol.HeaderSpec{{Name: wire.RunIDHeader, Pattern: "^[^|]+$",
			Means: "The run, if a handoff got one."}}
	}
	code := tree{"properties": tree{"error": tree{"properties": tree{"code": tree{"const": e.Code}}}}}
	d.messages[name] = tree{
		"name": name, "title": status + " " + string(e.Code), "summary": remedy, "headers": headersOf(headers, optional),
		"payload": tree{"allOf": []tree{reference("schemas", string(schemas.Error)), code}},
		"examples": []tree{{"name": string(e.Code), "headers": sent, "payload": tree{"error": tree{
			"code": e.Code, "message": text, "details": []any{}}}}},
	}
}

// plain returns a text of a table without its Markdown.
func plain(text string) string {
	return strings.ReplaceAll(unlinked(text), "`", "")
}

// headersFor returns the headers that a verb may have, in requests or in replies.
func headersFor(verb wire.Verb, verbs func(protocol.HeaderSpec) []wire.Verb) []protocol.HeaderSpec {
	return slices.DeleteFunc(slices.Clone(protocol.Headers()), func(h protocol.HeaderSpec) bool {
		return !slices.Contains(verbs(h), verb)
	})
}

// headersOf returns the schema of the headers that a message has, and of others that it may have.
func headersOf(required, optional []protocol.HeaderSpec) tree {
	properties, names := tree{}, []string{}
	for _, h := range required {
		names = append(names, h.Name)
	}
	for _, h := range slices.Concat(required, optional) {
		property := tree{"type": "string", "pattern": h.Pattern, "description": h.Means}
		if h.Example != "" {
			property["examples"] = []string{h.Example}
		}
		properties[h.Name] = property
	}
	return tree{"type": "object", "properties": properties, "required": names}
}

// payload returns the document of a schema, as it was generated so far.
func (g *generator) payload(name schemas.Name) (source tree) {
	g.decode(file(name), &source)
	return source
}

// payloads returns all schemas and their definitions as AsyncAPI's parser reads them: without ids and examples,
// each definition a component, and nothing beside a reference.
func (g *generator) payloads() tree {
	all := tree{}
	names := schemas.Names()
	for _, name := range names {
		source := g.payload(name)
		definitions, _ := source["$defs"].(tree)
		for definition, schema := range definitions {
			all[string(name)+"."+definition] = component(name, schema)
		}
		for _, member := range []string{"$defs", "$schema", "$id", "examples"} {
			delete(source, member)
		}
		all[string(name)] = component(name, source)
	}
	return all
}

// component returns a part of a schema with its references led to components.
func component(name schemas.Name, part any) any {
	switch part := part.(type) {
	case []any:
		list := make([]any, len(part))
		for i, element := range part {
			list[i] = component(name, element)
		}
		return list
	case tree:
		out := tree{}
		for member, value := range part {
			switch member {
			case "$ref", "examples", "enum", "const":
				out[member] = value
			default:
				out[member] = component(name, value)
			}
		}
		ref, is := part["$ref"].(string)
		if !is {
			return out
		}
		document, definition, within := strings.Cut(ref, "#/$defs/")
		target := strings.TrimSuffix(document, ".schema.json")
		if document == "" {
			target = string(name)
		}
		if within {
			target += "." + definition
		}
		out["$ref"] = reference("schemas", target)["$ref"]
		if len(out) == 1 {
			return out
		}
		delete(out, "$ref")
		out["allOf"] = []any{reference("schemas", target)}
		return out
	}
	return part
}

func reference(kind, name string) tree { return pointer("components", kind, name) }

// pointer returns a reference within the document.
func pointer(tokens ...string) tree {
	path := "#"
	for _, token := range tokens {
		path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
	}
	return tree{"$ref": path}
}

func alertCodes() (codes []runevents.AlertCode) {
	for _, alert := range protocol.Alerts() {
		codes = append(codes, alert.Code)
	}
	return codes
}

package mcp

import (
	"context"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// townsURI is the prefix of the URIs of the towns of a world: worldengine://<world>/towns/<id>, percent-encoded.
func (m *Tools) townsURI() string { return "worldengine://" + m.Client.World + "/towns/" }

func (m *Tools) townURI(id string) string { return m.townsURI() + url.PathEscape(id) }

// townOf returns the id of the town with a URI; "" if it is none of this world.
func (m *Tools) townOf(uri string) string {
	path, is := strings.CutPrefix(uri, m.townsURI())
	id, err := url.PathUnescape(path)
	if !is || err != nil {
		return ""
	}
	return id
}

const jsonType = "application/json"

// addResources adds the towns: one template, and a list in pages that the server answers anew each time.
func (m *Tools) addResources(s *sdk.Server) {
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "town", Title: "Town", MIMEType: jsonType, URITemplate: m.townsURI() + "{townId}",
		Description: "The state of a town: snapshot, snapshotHash, decisionEpoch. A subscriber hears of each change.",
	}, m.readResource)
	s.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if list, is := request.(*sdk.ListResourcesRequest); is {
				return m.listResources(ctx, list)
			}
			return next(ctx, method, request)
		}
	})
}

// resourcePage is how many towns a page of resources/list has.
const resourcePage = 100

func (m *Tools) listResources(ctx context.Context, request *sdk.ListResourcesRequest) (*sdk.ListResourcesResult, error) {
	query := messages.TownList{Limit: resourcePage}
	if request.Params != nil {
		query.After = request.Params.Cursor
	}
	page, err := m.towns(ctx, query)
	if err != nil {
		return nil, protocolError(err)
	}
	list := &sdk.ListResourcesResult{Resources: []*sdk.Resource{}, NextCursor: page.Next}
	list.CacheScope = "private" // users may read different towns
	for _, t := range page.Towns {
		list.Resources = append(list.Resources, &sdk.Resource{
			URI: m.townURI(t.TownID), Name: t.TownID, MIMEType: jsonType, Description: "A town of the world."})
	}
	return list, nil
}

func (m *Tools) readResource(
	ctx context.Context, request *sdk.ReadResourceRequest,
) (*sdk.ReadResourceResult, error) {
	uri := request.Params.URI
	town, err := m.townAt(ctx, uri)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(town, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{
		{URI: uri, MIMEType: jsonType, Text: string(text)}}}, nil
}

// townAt returns the town with a URI.
func (m *Tools) townAt(ctx context.Context, uri string) (*client.Town, error) {
	id := m.townOf(uri)
	if id == "" {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	town, err := m.Client.Town(ctx, id)
	if client.IsCode(err, wire.CodeUnknownTown) {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	if err != nil {
		return nil, protocolError(err)
	}
	return town, nil
}

// subscribe subscribes the session to a town that its user may read.
func (m *Tools) subscribe(ctx context.Context, request *sdk.SubscribeRequest) error {
	town, err := m.townAt(ctx, request.Params.URI)
	if err != nil {
		return err
	}
	if err := m.Towns.subscribe(ctx, m.server, town.TownID, request.Params.URI); err != nil {
		return protocolError(err)
	}
	return nil
}

func (m *Tools) unsubscribe(_ context.Context, request *sdk.UnsubscribeRequest) error {
	m.Towns.unsubscribe(m.server, m.townOf(request.Params.URI))
	return nil
}

// completions bounds the values of a completion, as the protocol does.
const completions = 100

// complete completes the ids of towns, in the template and in prompts.
func (m *Tools) complete(ctx context.Context, request *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
	result := &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}
	if request.Params.Argument.Name != townParameter {
		return result, nil
	}
	page, err := m.towns(ctx, messages.TownList{Text: request.Params.Argument.Value, Limit: completions})
	if err != nil {
		return nil, protocolError(err)
	}
	for _, t := range page.Towns {
		result.Completion.Values = append(result.Completion.Values, t.TownID)
	}
	result.Completion.Total, result.Completion.HasMore = page.Found, page.Next != ""
	return result, nil
}

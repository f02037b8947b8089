package mcp

import (
	"context"
	"errors"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// mostCalls bounds the calls of one session that are in hand.
const mostCalls = 16

// bounded refuses calls beyond mostCalls.
func bounded() sdk.Middleware {
	slots := make(chan struct{}, mostCalls)
	free := []string{"ping", "subscriptions/listen"}
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if slices.Contains(free, method) {
				return next(ctx, method, request)
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				return next(ctx, method, request)
			default:
				return nil, errTooBusy
			}
		}
	}
}

var errTooBusy = errors.New("this session has as many calls in hand as it may: wait for their answers; " +
	"nothing was proposed by this call")

// nullsAreAbsent removes the arguments of a tool that are null, as some hosts write absent ones.
func nullsAreAbsent(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		if call, is := request.(*sdk.CallToolRequest); is && call.Params != nil {
			call.Params.Arguments = withoutNulls(call.Params.Arguments)
		}
		return next(ctx, method, request)
	}
}

func withoutNulls(arguments []byte) []byte {
	var given map[string]jsontext.Value
	if json.Unmarshal(arguments, &given) != nil {
		return arguments
	}
	for name, value := range given {
		if value.Kind() == 'n' {
			delete(given, name)
		}
	}
	changed, err := json.Marshal(given)
	if err != nil {
		return arguments
	}
	return changed
}

package mcp

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/semaphore"
)

// Bounds of the calls of one session.
const (
	// maxCalls is how many are carried out at a time, and maxWaiting how many may wait, waitTimeout each.
	maxCalls    = 16
	maxWaiting  = 64
	waitTimeout = 5 * time.Second
)

// errTooBusy is the answer to a call beyond the bounds.
var errTooBusy = &jsonrpc.Error{Code: -32000, Message: "this session has as many calls in hand as it may: wait for " +
	"their answers; " + errNothingProposed.Error()}

// boundCalls bounds the calls of a session. Those that need not ask the world are free, and those that go on
// until they are cancelled.
func boundCalls() sdk.Middleware {
	admitted, slots := semaphore.NewWeighted(maxCalls+maxWaiting), semaphore.NewWeighted(maxCalls)
	free := []string{"ping", "subscriptions/listen"}
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
			if slices.Contains(free, method) {
				return next(ctx, method, request)
			}
			if !admitted.TryAcquire(1) {
				return nil, errTooBusy
			}
			defer admitted.Release(1)
			waiting, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTooBusy)
			defer cancel()
			if slots.Acquire(waiting, 1) != nil {
				return nil, context.Cause(waiting)
			}
			defer slots.Release(1)
			return next(ctx, method, request)
		}
	}
}

// reportDoubt adds to the text of each failed call whether anything was proposed: the library refuses
// arguments before a tool sees them.
func reportDoubt(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		result, err := next(ctx, method, request)
		failed, is := result.(*sdk.CallToolResult)
		if !is || failed == nil || !failed.IsError || len(failed.Content) == 0 {
			return result, err
		}
		text, is := failed.Content[0].(*sdk.TextContent)
		if is && !strings.Contains(text.Text, errNothingProposed.Error()) && !strings.Contains(text.Text, maybeExecuted) {
			text.Text += "; " + errNothingProposed.Error()
		}
		return result, err
	}
}

// dropNullArguments removes the arguments of a tool that are null, as some hosts write absent ones.
func dropNullArguments(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		if call, is := request.(*sdk.CallToolRequest); is && call.Params != nil {
			call.Params.Arguments = dropNulls(call.Params.Arguments)
		}
		return next(ctx, method, request)
	}
}

func dropNulls(arguments []byte) []byte {
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

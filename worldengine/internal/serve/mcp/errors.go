package mcp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/phrase"
)

// errNothingProposed ends the text of an error of a call that sent no proposal, or whose proposal was
// refused for certain.
var errNothingProposed = errors.New("nothing was proposed by this call")

// nothingProposed adds errNothingProposed to an error; nil stays nil.
func nothingProposed(err error) error {
	if err == nil || errors.Is(err, errNothingProposed) {
		return err
	}
	if none, is := errors.AsType[*client.UnavailableError](err); is {
		// The client says it of any request; of one that only reads it would leave a doubt.
		read := *none
		read.Message = strings.TrimSuffix(none.Message, "; the request may have been carried out")
		err = &read
	}
	return fmt.Errorf("%w; %w", err, errNothingProposed)
}

// refusedForCertain reports whether the only delivery of a handoff was refused before it was judged. A
// 429 or 503 may follow an attempt that was accepted.
func refusedForCertain(err error) bool {
	refused, is := errors.AsType[*client.ReplyError](err)
	return is && refused.Refused() && refused.Status != http.StatusTooManyRequests
}

// modelError returns an error whose text is a sentence with the details and their paths.
func modelError(err error) error {
	text := phrase.Sentence(err)
	if refused, is := errors.AsType[*client.ReplyError](err); is {
		for _, detail := range refused.Details {
			text += "; " + detail.String()
		}
	}
	return errors.New(text)
}

// protocolError returns the error of a method that is no tool: modelError's text with a code.
func protocolError(err error) error {
	code := int64(jsonrpc.CodeInternalError)
	refused, is := errors.AsType[*client.ReplyError](err)
	if errors.Is(err, errArgument) || is && refused.Refused() {
		code = jsonrpc.CodeInvalidParams
	}
	return &jsonrpc.Error{Code: code, Message: modelError(err).Error()}
}

// errArgument is a part of the error of an argument that cannot be used.
var errArgument = errors.New("mcp: an argument cannot be used")

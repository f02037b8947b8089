package hosting

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"worldengine/worldengine/internal/serve/service"
)

// answer carries out a request of another server about a world, in a goroutine of its own: a removal ends the
// subscription on which it came.
func (ws *Worlds) answer(msg *nats.Msg, carryOut func(ctx context.Context) (data []byte, err error)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
		defer cancel()
		data, err := carryOut(ctx)
		answer := &nats.Msg{Subject: msg.Reply, Header: nats.Header{}, Data: data}
		addFailure(answer, err)
		_ = ws.shared.Conn.PublishMsg(answer)
	}()
}

// askPeer has another server carry out a request about a world. The error is nats.ErrNoResponders if no server would
// do it. Else its text is silence if the server does not answer, and begins with failed if the server answers so.
func (ws *Worlds) askPeer(ctx context.Context, request *nats.Msg, silence, failed string) ([]byte, error) {
	answer, err := ws.shared.Conn.RequestMsgWithContext(ctx, request)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", service.ErrWorldNotServed, silence, err)
	}
	return answer.Data, failureIn(answer, failed)
}

// failureHeaders are the headers in which one server tells another why a request about worlds failed: the code of
// the error in the form of a header. failedHeader is for all other errors, which get the code INTERNAL.
var failureHeaders = []struct {
	header string
	err    error
}{
	{"World-In-Use", service.ErrWorldInUse}, {"World-Exists", service.ErrWorldExists},
	{"World-Not-Served", service.ErrWorldNotServed}, {"Unknown-World", service.ErrUnknownWorld},
}

const failedHeader = "Failed"

// addFailure adds an error, unless it is nil, to the answer to another server.
func addFailure(answer *nats.Msg, err error) {
	for _, f := range failureHeaders {
		if errors.Is(err, f.err) {
			answer.Header.Set(f.header, strings.TrimPrefix(err.Error(), f.err.Error()+": "))
			return
		}
	}
	if err != nil {
		answer.Header.Set(failedHeader, err.Error())
	}
}

// failureIn returns the error in the answer of another server; failed says what that server could not do.
func failureIn(answer *nats.Msg, failed string) error {
	for _, f := range failureHeaders {
		if why := answer.Header.Get(f.header); why != "" {
			return fmt.Errorf("%w: %s", f.err, why)
		}
	}
	if why := answer.Header.Get(failedHeader); why != "" {
		return fmt.Errorf("hosting: %s: %s", failed, why)
	}
	return nil
}

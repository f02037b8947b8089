package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxFrame bounds a line of a session in bytes.
const maxFrame = 4 << 20

// lineConn is a session's connection over lineConn. The library's own connection ends at a line that is no
// JSON-RPC message, and changes ids beyond 2^53 and fractions. Here such a line gets an error, and each
// answer has the id of its request, byte for byte. The input ends only after each request has its
// answer, since the library would cancel the unanswered requests.
type lineConn struct {
	input chan []byte // lines; closed at the end of the input
	end   error       // of the input, once that is closed
	out   io.Writer

	mu       sync.Mutex
	changed  sync.Cond
	closed   chan struct{}
	isClosed bool
	last     int64           // the library's id of the last call
	calls    map[int64]*call // without an answer
	answered answeredCalls
}

// call is a request of the host.
type call struct {
	id        jsontext.Value // as the host wrote it
	callbacks AnswerCallbacks
	listens   bool // it goes on until the host cancels it
}

func newLineConn(in io.Reader, out io.Writer) *lineConn {
	c := &lineConn{input: make(chan []byte), out: out, closed: make(chan struct{}), calls: map[int64]*call{},
		answered: newAnsweredCalls()}
	c.changed.L = &c.mu
	go c.read(in)
	return c
}

// Connect implements sdk.Transport.
func (c *lineConn) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID implements sdk.Connection.
func (c *lineConn) SessionID() string { return "" }

// read reads lines, which end at \n alone, until the input ends or the connection is closed.
func (c *lineConn) read(in io.Reader) {
	defer close(c.input)
	reader := bufio.NewReaderSize(in, 64<<10)
	for {
		var line []byte
		part, err := reader.ReadSlice('\n')
		for line = append(line, part...); errors.Is(err, bufio.ErrBufferFull); {
			part, err = reader.ReadSlice('\n')
			line = append(line, part[:min(len(part), max(maxFrame+1-len(line), 0))]...)
		}
		select {
		case c.input <- line:
		case <-c.closed:
			err = io.EOF
		}
		if c.end = err; err != nil {
			return
		}
	}
}

// Read implements sdk.Connection.
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.closed:
			return nil, io.EOF
		case line, more := <-c.input:
			if !more {
				c.awaitAnswers()
				return nil, c.end
			}
			if msg, err := c.message(line); msg != nil || err != nil {
				return msg, err
			}
		}
	}
}

// awaitAnswers waits until each request that has an end has its answer, or the connection is closed.
func (c *lineConn) awaitAnswers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	ends := func(one *call) bool { return !one.listens }
	for slices.ContainsFunc(slices.Collect(maps.Values(c.calls)), ends) && !c.isClosed {
		c.changed.Wait()
	}
}

// members are the members of a JSON-RPC message.
type members struct {
	Version jsontext.Value `json:"jsonrpc,omitzero"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  jsontext.Value `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

// message returns the message in a line. It answers a line that has none, and returns nil.
func (c *lineConn) message(line []byte) (jsonrpc.Message, error) {
	line = bytes.TrimSpace(line)
	var m members
	switch {
	case len(line) == 0:
		return nil, nil
	case len(line) > maxFrame:
		return nil, c.refuse(nil, jsonrpc.CodeInvalidRequest, fmt.Sprintf("the line has more than %d bytes", maxFrame))
	case !jsontext.Value(line).IsValid():
		return nil, c.refuse(nil, jsonrpc.CodeParseError, "Parse error: the line is no JSON")
	case line[0] != '{':
		return nil, c.refuse(nil, jsonrpc.CodeInvalidRequest,
			"the line is no JSON-RPC message, which is one object; batches are not taken")
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return nil, c.refuse(nil, jsonrpc.CodeInvalidRequest, "the message cannot be read: "+err.Error())
	}
	if wrong := m.invalidReason(); wrong != "" {
		if kind := m.ID.Kind(); kind != '"' && kind != '0' {
			m.ID = nil
		}
		return nil, c.refuse(m.ID, jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC message: "+wrong)
	}
	if m.Method == nil { // the answer to a request of the library, whose ids are its own
		return jsonrpc.DecodeMessage(line)
	}
	return c.request(&m)
}

// invalidReason says why the members are no JSON-RPC message; "" if they are one.
func (m *members) invalidReason() string {
	kind := m.ID.Kind()
	switch {
	case string(m.Version) != `"2.0"`:
		return `"jsonrpc" must be "2.0"`
	case m.ID != nil && kind != '"' && kind != '0':
		return `"id" must be a text or a number`
	case m.Method != nil && m.Method.Kind() != '"':
		return `"method" must be a text`
	case m.Method == nil && (m.ID == nil || m.Result == nil && m.Error == nil):
		return `it has neither "method", nor "id" with "result" or "error"`
	case m.Error != nil && m.Error.Kind() != '{':
		return `"error" must be an object`
	}
	return ""
}

// request returns a request or notification of the host, with an id of our own.
func (c *lineConn) request(m *members) (jsonrpc.Message, error) {
	request := &jsonrpc.Request{}
	if err := json.Unmarshal(m.Method, &request.Method); err != nil {
		return nil, c.refuse(m.ID, jsonrpc.CodeInvalidRequest, err.Error())
	}
	if m.Params.Kind() != 'n' {
		request.Params = []byte(m.Params)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.ID == nil {
		if request.Method == "notifications/cancelled" {
			request.Params = c.cancelled(request.Params)
		}
		return request, nil
	}
	c.last++
	c.calls[c.last] = &call{id: m.ID, listens: request.Method == "subscriptions/listen"}
	request.ID, _ = jsonrpc.MakeID(float64(c.last))
	request.Extra = &sdk.RequestExtra{Header: http.Header{callHeader: {strconv.FormatInt(c.last, 10)}}}
	return request, nil
}

// cancelled notes that the host gives up a call, and returns the parameters of the notification with our
// id. The host ignores the call's answer, also one that it gets at the same moment.
func (c *lineConn) cancelled(params []byte) []byte {
	var members map[string]jsontext.Value
	if json.Unmarshal(params, &members) != nil {
		return params
	}
	id := members["requestId"]
	c.answered.cancelled(id)
	members["requestId"] = jsontext.Value("0") // none
	for number, one := range c.calls {
		if bytes.Equal(one.id, id) {
			members["requestId"] = jsontext.Value(strconv.FormatInt(number, 10))
			one.callbacks = AnswerCallbacks{}
			delete(c.calls, number)
			c.changed.Broadcast()
		}
	}
	changed, err := json.Marshal(members)
	if err != nil {
		return params
	}
	return changed
}

// Expect implements Answers. A host that has cancelled the call gets no answer.
func (c *lineConn) Expect(request *sdk.CallToolRequest, d AnswerCallbacks) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.calls[callNumber(request)]; one != nil {
		one.callbacks = d
	}
}

// Write implements sdk.Connection.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("a message cannot be written: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	response, is := msg.(*jsonrpc.Response)
	if !is {
		return c.line(data)
	}
	number, _ := response.ID.Raw().(int64)
	one := c.calls[number]
	if one == nil {
		return nil // the host has cancelled it
	}
	delete(c.calls, number)
	defer c.changed.Broadcast()
	var m members
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if err := c.answer(one.id, &m); err != nil {
		return err
	}
	if one.callbacks.Done != nil {
		one.callbacks.Done()
	}
	c.answered.Add(string(one.id), one.callbacks)
	return nil
}

func (c *lineConn) answer(id jsontext.Value, m *members) error {
	m.Version, m.ID = jsontext.Value(`"2.0"`), id
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return c.line(data)
}

func (c *lineConn) line(data []byte) error {
	_, err := c.out.Write(append(data, '\n'))
	return err
}

// refuse answers a line that is no message. Without an id of its own the answer has null.
func (c *lineConn) refuse(id jsontext.Value, code int64, message string) error {
	if id == nil {
		id = jsontext.Value("null")
	}
	why, err := json.Marshal(&jsonrpc.Error{Code: code, Message: message})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer(id, &members{Error: why})
}

// Close implements sdk.Connection.
func (c *lineConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isClosed {
		c.isClosed = true
		close(c.closed)
		c.changed.Broadcast()
	}
	return nil
}

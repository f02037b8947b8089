package mcp

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// writeTimeout is how long a host may leave a part of an answer unread.
	writeTimeout = 10 * time.Second
	// commentInterval is how often an open stream gets a comment, by which both ends, and proxies, notice
	// that it is alive.
	commentInterval = 15 * time.Second
)

// patientWriter is an answer without a bound on its whole time, but on each of its writes.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	mu      sync.Mutex
	status  int
	err     error
}

// newPatientWriter lifts the bounds of a request whose body was read.
func newPatientWriter(w http.ResponseWriter) *patientWriter {
	p := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	_ = p.control.SetReadDeadline(time.Time{}) // or the end of the deadline would end the request's context
	_ = p.control.SetWriteDeadline(time.Time{})
	return p
}

// Unwrap implements the rule of http.ResponseController.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (p *patientWriter) WriteHeader(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
	p.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (p *patientWriter) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := p.ResponseWriter.Write(data)
	if err != nil {
		p.err = err
	}
	return n, err
}

// failed reports whether the host did not get the whole answer.
func (p *patientWriter) failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || p.status >= http.StatusBadRequest
}

// comment writes a comment into an open stream, and reports whether the host is there.
func (p *patientWriter) comment() bool {
	if p.failed() {
		return false
	}
	_, err := p.Write([]byte(": still there\n\n"))
	return err == nil && p.control.Flush() == nil
}

// stream serves the notices of a session until the host, the session or the handler ends.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, s *session) {
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), toolsKey{}, s.tools))
	defer cancel()
	out := newPatientWriter(w)
	var beside sync.WaitGroup
	beside.Go(func() {
		defer cancel()
		for {
			select {
			case <-time.After(commentInterval):
			case <-ctx.Done():
				return
			case <-h.end:
				return
			}
			if !out.comment() {
				return
			}
		}
	})
	h.sdk.ServeHTTP(out, r.WithContext(ctx))
	cancel()
	beside.Wait()
}

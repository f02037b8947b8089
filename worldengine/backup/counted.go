package backup

import "io"

// counted reports how much was written to a stream's file.
type counted struct {
	io.Writer
	stream string
	bytes  int64
	report func(stream string, bytes int64) // may be nil
}

// Write writes, and reports.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes += int64(n)
	if c.report != nil {
		c.report(c.stream, c.bytes)
	}
	return n, err
}

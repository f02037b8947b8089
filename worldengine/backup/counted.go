package backup

import "io"

// counted tells how much was written to a stream's file.
type counted struct {
	io.Writer
	stream string
	bytes  int64
	tell   func(stream string, bytes int64) // where set
}

// Write writes, and tells.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.bytes += int64(n)
	if c.tell != nil {
		c.tell(c.stream, c.bytes)
	}
	return n, err
}

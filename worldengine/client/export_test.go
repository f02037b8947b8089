package client

import "time"

// SetPace gives Events bounds with which a test takes no minute: how far apart the clocks may be,
// how many runs a page of a list has, and how many messages may wait.
func (c *Client) SetPace(clocks time.Duration, page, waiting int) {
	c.pace = &pace{waiting: waiting, clocks: clocks, page: page, sweep: 20,
		away: 5 * time.Millisecond}
}

package client

import "time"

// SetPace gives Events bounds with which a test takes no minute: how late an event may come, how
// many runs a page of a list has, and how many messages may wait.
func (c *Client) SetPace(late time.Duration, page, waiting int) {
	c.pace = &pace{waiting: waiting, late: late, page: page, sweep: 20, away: 5 * time.Millisecond,
		seldom: 10 * time.Millisecond, makeUp: time.Hour}
}

// SetMakeUp says how often Changes asks a server that publishes notices. SetPace comes before it.
func (c *Client) SetMakeUp(each time.Duration) { c.pace.makeUp = each }

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"worldengine/runevents"
	"worldengine/worldengine/client"
	"worldengine/worldengine/wire"
)

// An acknowledged alert names the person, and is not open any more; a further acknowledgement
// changes nothing.
func TestAlerts_Acknowledged(t *testing.T) {
	c := online(t)
	js := c.streams()
	for i := range 3 {
		alert := runevents.Alert{
			Code: runevents.ApplyInDoubt, Severity: runevents.P1, RunID: fmt.Sprint("run-", i),
			Message: "In doubt.", At: runevents.Timestamp(time.Now()),
		}
		_, err := js.Publish(t.Context(), wire.AlertSubject("main", string(alert.Code)),
			[]byte(marshal(t, alert)))
		require.NoError(t, err)
	}
	assert.Equal(t, exitFailed, c.run("status").status)
	ack := []string{"alerts", "ack", "1", "3", "--reason", "It was applied.", "--actor"}
	told := c.ok(append(ack, "ada")...)
	assert.Regexp(t,
		`^alert 1, APPLY_IN_DOUBT: acknowledged by ada at \S+: It was applied\.\nalert 3, `, told)
	assert.Equal(t, told, c.ok(append(ack, "bob")...))
	assert.Regexp(t, `(?m)^3 .* by ada +In doubt\.\n2 .* - +In doubt\.\n1 .* by ada`,
		c.ok("alerts", "list"))
	open := c.ok("alerts", "list", "--open")
	assert.Regexp(t, `(?m)^2 .* run-1 +- +In doubt\.$`, open)
	assert.NotContains(t, open, "run-0")

	type answer struct {
		Alerts []client.Alert `json:"alerts"`
	}
	got := decode[answer](t, c.ok("alerts", "ack", "2", "-o", "json"))
	require.Len(t, got.Alerts, 1)
	assert.Equal(t, "operator", got.Alerts[0].Acknowledged.By)
	assert.Equal(t, got.Alerts[0], decode[answer](t,
		c.ok("alerts", "list", "-o", "json")).Alerts[1])
	text := c.ok("status")
	assert.Regexp(t, `(?m)^health +good$`, text)
	assert.Regexp(t, `(?m)^alerts +none open, and 3 acknowledged$`, text)

	missing := c.run("alerts", "ack", "99")
	assert.Equal(t, exitRefused, missing.status)
	assert.Contains(t, missing.err, "UNKNOWN_ALERT")
	for _, wrong := range [][]string{{}, {"x"}, {"-1"}, {"1.5"}} {
		assert.Equal(t, exitUsage, c.run(append([]string{"alerts", "ack"}, wrong...)...).status,
			"%q", wrong)
	}
}

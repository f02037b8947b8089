package main

import (
	"context"
	"fmt"
	"io"

	"worldengine/runevents"
	"worldengine/worldengine/wire"
)

// alertsListCommand lists alerts.
type alertsListCommand struct {
	Limit int    `help:"How many alerts to show at most, ${default} by default." default:"50"`
	After uint64 `help:"Go on with older ones behind this place, which the end of a page names."`
}

// Help is the command's long help.
func (alertsListCommand) Help() string {
	return `Shows the alerts that the world keeps, the newest first: those of 30 days, at most. It needs the rights
of an operator or an observer. With -o json it prints the server's reply. To see them as they come: watch --alerts.

Example:

    handoffctl alerts list --limit 10`
}

// maxAlertPage is how many alerts one request may ask for.
const maxAlertPage = 200

// Run lists the alerts.
func (c *alertsListCommand) Run(ctx context.Context, a *app) error {
	if c.Limit < 1 || c.Limit > maxAlertPage {
		return usagef("--limit must be 1 to %d, not %d", maxAlertPage, c.Limit)
	}
	server, err := a.connect()
	if err != nil {
		return err
	}
	defer server.Conn.Close()
	request := struct {
		After uint64 `json:"after,omitzero"`
		Limit int    `json:"limit"`
	}{c.After, c.Limit}
	var page struct {
		Alerts []runevents.Alert `json:"alerts"`
		Next   uint64            `json:"next"`
	}
	raw, err := ask(ctx, server, wire.AlertList, request, &page)
	if err != nil {
		return err
	}
	if a.json() {
		return a.printRaw(raw)
	}
	return a.printTable(func(w io.Writer) {
		fmt.Fprintln(w, "AT\tSEVERITY\tCODE\tRUN\tMESSAGE")
		for i := range page.Alerts {
			alert := &page.Alerts[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", show(alert.At), show(string(alert.Severity)),
				show(string(alert.Code)), orDash(alert.RunID), show(alert.Message))
		}
		if page.Next > 0 {
			fmt.Fprintf(w, "there are older ones: --after %d\n", page.Next)
		}
	})
}

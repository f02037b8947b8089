package main

import (
	"context"
	"strings"

	"worldengine/worldengine/client"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// wholeRunID is the length of the ids that the engine gives runs.
const wholeRunID = 36

// runID returns the id of the run that the command line names by its id or by the beginning of it.
// If no run that is looked at has such an id it returns the text, which the server judges. sure
// accepts the beginning only if all runs were looked at.
func (a *app) runID(ctx context.Context, named string, sure bool) (string, error) {
	if named == "" || len(named) >= wholeRunID {
		return named, nil
	}
	server, err := a.connect()
	if err != nil {
		return "", err
	}
	found, looked, all := runsNamed(ctx, server, named)
	if !all { // an older run of another producer may have a short id
		_, err := server.Run(ctx, named)
		if err == nil || !client.IsCode(err, wire.CodeUnknownRun) {
			return named, err
		}
	}
	switch {
	case len(found) > 1:
		return "", usagef("%d runs have an id that begins with %s, such as %s and %s: give more "+
			"of it",
			len(found), show(named), found[0], found[1])
	case len(found) == 0 && !all:
		return "", usagef("none of the newest %d runs has an id that begins with %s: give the "+
			"whole id",
			looked, show(named))
	case len(found) == 0:
		return named, nil
	case sure && !all:
		return "", usagef("the run %s has an id that begins with %s, but only the newest %d runs "+
			"were looked at: give the whole id", found[0], show(named), looked)
	}
	return found[0], nil
}

// runsNamed returns the ids of the runs that have an id, or else that begin with it, how many runs
// it looked at, and whether these are all. Of who may not list runs it says that they are: such a
// user may name a whole id, and hears of trouble from the verb.
func runsNamed(
	ctx context.Context, server *client.Client, named string,
) (found []string, looked int, all bool) {
	page, err := listRuns(ctx, server, messages.RunList{ID: named}, maxRunPage)
	if err != nil {
		return nil, 0, true
	}
	for i := range page.Runs {
		switch id := page.Runs[i].RunID; {
		case id == named: // a run of another producer may have a short id
			return []string{id}, page.Searched, true
		case strings.HasPrefix(id, named):
			found = append(found, id)
		}
	}
	return found, page.Searched, page.Next == 0
}

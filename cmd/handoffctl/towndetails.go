package main

import (
	"context"
	"sync"

	"worldengine/worldengine/client"
	"worldengine/worldengine/wire"
)

// maxDetails is how many towns of a list are asked for one by one.
const maxDetails = 1000

// listedTown is a town of a list, with what only town.get has; of those beyond maxDetails
// that is not known.
type listedTown struct {
	client.TownSummary
	Damaged      bool
	Apply        string
	PendingRunID string
	Paused       bool
	AbsentSince  string
}

// listTowns returns the towns in the order of their ids.
func listTowns(ctx context.Context, server *client.Client) ([]listedTown, error) {
	var towns []listedTown
	for t, err := range server.Towns(ctx) {
		if err != nil {
			return nil, err
		}
		towns = append(towns, listedTown{TownSummary: t})
	}
	next := make(chan *listedTown, len(towns))
	for i := range towns[:min(len(towns), maxDetails)] {
		next <- &towns[i]
	}
	close(next)
	errs := make(chan error, 8)
	var workers sync.WaitGroup
	for range cap(errs) {
		workers.Go(func() {
			for t := range next {
				if err := t.ask(ctx, server); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(errs)
	return towns, <-errs
}

// ask asks town.get for what a list does not have.
func (t *listedTown) ask(ctx context.Context, server *client.Client) error {
	got, err := server.Town(ctx, t.TownID)
	if client.IsCode(err, wire.CodeTownDamaged) {
		t.Damaged = true
		return nil
	}
	if err != nil {
		return err
	}
	t.TownSummary, t.Apply = got.TownSummary, got.Apply
	t.PendingRunID, t.Paused, t.AbsentSince = got.PendingRunID, got.Paused, got.PluginAbsentSince
	return nil
}

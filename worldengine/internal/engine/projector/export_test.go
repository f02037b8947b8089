package projector

import "context"

// Enable is what Run does first.
func (p *Projector) Enable() { p.enable() }

// Look is one look of Run.
func (p *Projector) Look(ctx context.Context) { p.projectBacklog(ctx) }

// Position returns the log sequence up to which all rows are projected.
func (p *Projector) Position() uint64 { return p.position.Load() }

// SkipTo makes the projector look at no row up to a log sequence, as New does for old rows.
func (p *Projector) SkipTo(seq uint64) {
	p.startSeq = seq
	p.position.Store(seq)
}

// Package signals has the signals of operators: what one says, the run that records it, and how
// each server of a world hears of it. What a signal does to a town, and to the runs that wait, is
// the engine's.
package signals

// Package signals has the signals of operators: the run that records one, and the pause of the world.
// The effect of a signal on a town, and on the runs that wait, is the engine's.
package signals

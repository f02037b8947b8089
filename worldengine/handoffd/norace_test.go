//go:build !race

package handoffd

// raceOverhead is how many times the memory a program may take that watches its own memory for
// races.
const raceOverhead = 1

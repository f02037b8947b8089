// Package machine decides about a town, and makes the run events of its decisions (RunEvents v2,
// ExecutionSemantics v2). Step is pure: it has no clock, no chance, no I/O and no goroutine, so the
// same town and the same input give the same record, byte for byte. Time and ids come with the
// input; the engine commits the record and executes the rest.
//
//	Town, Input ── Step ──> Record, the next town, the answer
package machine

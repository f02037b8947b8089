// Package lifecycle decides which run events a decision, an attempt to apply a command, and an
// operator's signal emit, and with which payloads (RunEvents v2, ExecutionSemantics v2). It is
// pure: it emits into a runevents.Producer, which has the clock and the ids.
package lifecycle

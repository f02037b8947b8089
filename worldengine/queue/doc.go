// Package queue gives each town one owner at a time, and bounds what waits. It knows nothing of
// NATS, of handoffs or of the engine: what waits is a type parameter.
package queue

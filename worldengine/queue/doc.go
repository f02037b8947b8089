// Package queue gives each town one owner at a time, and bounds its waiting tasks. It knows nothing
// of NATS, handoffs or the engine: a type parameter is the task's item.
package queue

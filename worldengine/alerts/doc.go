// Package alerts raises the alerts of a world and keeps what its bus refuses.
//
// An alert goes to the log of the server, to the stream WORLD_<world>_ALERTS, and to Config.Notify.
// A run event that the bus refuses for good, or a log message that the bus cannot read, becomes a
// dead letter in WORLD_<world>_DEADLETTER, with an alert (ExecutionSemantics v1, section 4). Both
// streams are bounded, and made again when they are gone.
package alerts

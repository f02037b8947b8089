// Package emit emits run events from a process that is not the engine, such as the worker of a
// plugin, over the verb run.append (RunEvents v2.0.1, sections 2.5 and 5.3):
//
//	Emitter ── worldengine.v1.<world>.run.append ──> the engine, which is the append authority
//
// The request is a run-append-request.v1 with one event; the answer is a run-append-reply.v1, or an
// error reply with the header Nats-Service-Error-Code and, on 429 and 503, Retry-After-Ms.
//
// The Emitter draws the eventId of each event once, before it sends the event, so that every retry
// has the same eventId. After a restart it draws anew: the authority stores an event once, by its
// idempotencyKey, and returns the stored eventId, which the Emitter adopts (section 2.5.1).
//
// A run of the engine accepts events of others' steps until it ends: a plugin emits the events of a
// command before it answers. After that a new event is refused with RUN_ENDED.
//
// Package runevents defines events and their valid transitions.
package emit

// Package httpd is the HTTP side of handoffd: one listener for the console, for the way of browsers to
// NATS (Bridge), and for monitoring.
//
// A browser sends requests for every page that a person has open, so the listener refuses those that
// a foreign page could make: without access control it answers only requests whose Host is an
// address or localhost, which a name that another site points here is not, and a Bridge takes
// WebSockets of known origins only. Every answer has headers that forbid scripts, styles and frames
// of other origins.
package httpd

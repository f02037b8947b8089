// Package httpd is the HTTP side of handoffd: one listener for the console, the way of browsers to
// NATS (Bridge), and what monitoring asks.
//
// A browser sends requests for every page that a person has open, so the listener refuses what such
// a page must not do: without access control it answers only requests whose Host is an address or
// localhost, which a name that another site points here is not, and a Bridge takes WebSockets of
// its own origin only. Every answer has headers that forbid scripts, styles and frames of other
// origins.
package httpd

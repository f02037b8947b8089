// Package index finds things in the log of a world: accepted keys, runs, the newest record of a
// town, lists. It is local, and rebuilt from the log if lost.
//
// The index has a row for each log message, in the order of the log, made from the message's
// subject and headers alone. Its file has these rows; numbers of names and links between rows are
// made when the file is read. So an index that grew with the log has the same file as one rebuilt
// from it, unless the log has forgotten messages since. Rows of forgotten messages are harmless,
// since readers of a row also read its record. Fingerprints stand for keys and run ids; the record
// shows whether a hit is right.
//
// A process puts its own commits into the index at once (Put). Other commits are read from the log
// when somebody waits for them (Wait, CatchUp). Nothing waits for the disk: a crash cuts off the end
// of the file, and Open reads the rest from the log again.
package index

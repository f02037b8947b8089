// Command handoffctl is for people who write agents and plugins, who test them, and who operate a
// world engine: it sends handoffs, replays fixtures, shows, puts and patches towns, pauses and
// resumes them, looks up results and run events, checks documents offline, plays a game server's
// plugin (plugin try), and measures.
//
//	handoffctl new town-threatened PROJECT_ADVANCE wall-perimeter | handoffctl send -
//
// A command prints its answer on standard output, for people by default and as one JSON value with
// -o json. Errors go to standard error: the machine code, a sentence, and each detail as "path:
// message". With -o json an error is also one JSON value {"error": {…}} on standard output.
//
// Exit status:
//
//	0  done; send exits 0 for any result that the engine gives
//	1  an expectation failed, a verified document is invalid, a benchmark saw a wrong result
//	2  the command line, or a file that it names, cannot be used
//	3  the server refused a login, a permission, or a request (4xx)
//	4  the server could not be reached or is in trouble: no responder, no answer, 5xx
package main

import "worldengine/worldengine/handoffctl"

func main() { handoffctl.Main() }

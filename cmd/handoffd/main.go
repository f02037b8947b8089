// Command handoffd is the authoritative world engine as a server: it takes execution-handoff.v1
// over NATS and answers with execution-result.v1.
//
//	handoffd [serve] [flags]   serve a world (the default)
//	handoffd demo              start a server, send it handoffs that end in every status
//	handoffd --check-config    print the world that would be served, or the first error
//	handoffd restore DIR       make a world of a backup that handoffctl has made
//	handoffd permissions       print the configuration of an external NATS server
//	handoffd password          draw a password for an access file
//	handoffd health            ask a server on this machine whether it is ready
//	handoffd help COMMAND      print the help of a command
//	handoffd version           print the version; so does --version
//	handoffd completion SHELL  print the completion script of bash, zsh or fish
//
// Every flag is also an environment variable, HANDOFFD_<FLAG>; an empty one counts as unset. Exit status: 0 when it was stopped
// and finished its work, 1 when it could not start or finish, 2 for a bad command line.
package main

import "worldengine/worldengine/handoffd"

func main() { handoffd.Main() }

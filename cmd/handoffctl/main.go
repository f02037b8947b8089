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
//	3  the server refused: a login, a permission, or with an error reply of 4xx
//	4  the server could not be reached or is in trouble: no responder, no answer, 5xx
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv))
}

// run is the program. It returns the exit status; env looks an environment variable up.
func run(
	ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer,
	env func(name string) (string, bool),
) int {
	a := &app{
		in: stdin, out: stdout, err: stderr,
		terminal: isTerminal(stdout), colours: colourful(stdout, env),
	}
	err := a.runLine(ctx, args, env)
	for _, nc := range a.opened {
		nc.Close()
	}
	if err != nil {
		return a.fail(err)
	}
	return exitOK
}

// runLine runs the command of a command line.
func (a *app) runLine(
	ctx context.Context, args []string, env func(name string) (string, bool),
) error {
	var line commandLine
	a.flags = &line.Global
	parser, err := newParser(&line, env, a.out, a.err, func(int) { a.helped = true })
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	switch {
	case a.helped:
		return nil
	case err != nil:
		return notUnderstood(err)
	}
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(parser)
	if err := command.BindToProvider(a.connect); err != nil {
		return err
	}
	return command.Run(a)
}

// notUnderstood is the error of a command line that the parser refuses.
func notUnderstood(err error) error {
	return usagef("%s\nTry 'handoffctl --help'.", err)
}

// Package handoffd is the program handoffd: its command line and its output. Command handoffd is Main.
package handoffd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"golang.org/x/crypto/bcrypt"

	"worldengine/worldengine/internal/kit/cmdline"
	"worldengine/worldengine/internal/serve/access"
)

// Main runs the program, and ends the process with its exit status.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	uuid.EnableRandPool()        // a handoff draws a dozen ids
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// commandLine is the whole command line.
type commandLine struct {
	Serve       serveCommand       `cmd:"" default:"withargs" help:"Serve a world (the default command)."`
	Demo        demoCommand        `cmd:"" help:"Start a server on a free port and send it handoffs that end in every status."`
	Restore     restoreCommand     `cmd:"" help:"Make a world from a backup, before it is served."`
	Permissions permissionsCommand `cmd:"" help:"Print the accounts and permissions of a world as configuration of a nats-server."`
	Password    passwordCommand    `cmd:"" help:"Make a random password or token for an access file, and print it with its hash."`
	Health      healthCommand      `cmd:"" help:"Ask a server on this machine whether it is ready."`
	Help        helpCommand        `cmd:"" help:"Show the help of a command."`
	Version     versionCommand     `cmd:"" help:"Print the version."`
	Completion  completionCommand  `cmd:"" help:"Print the completion script of a shell."`
}

// outputs are the outputs of a command.
type outputs struct{ out, log io.Writer }

// errSettings marks settings that --check-config found to be invalid.
var errSettings = errors.New("the settings are not valid")

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var line commandLine
	helped := false
	parser, err := kong.New(&line, kong.Name("handoffd"),
		kong.Description(
			"The authoritative world engine: execution handoffs in, execution results "+
				"out, over NATS."),
		kong.DefaultEnvars("HANDOFFD"), kong.Writers(stdout, stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(int) { helped = true }))
	if err != nil {
		fmt.Fprintln(stderr, "handoffd:", err)
		return 1
	}
	cmdline.UnsetEmpty(parser.Model)
	if len(args) > 0 {
		switch args[0] {
		case "help":
			args = append(slices.Clone(args[1:]), "--help")
		case "--version":
			args = append([]string{"version"}, args[1:]...)
		}
	}
	command, err := parser.Parse(args)
	if helped {
		return 0
	}
	if err != nil {
		printFailure(stderr, args, err, "Try 'handoffd --help'.")
		return 2
	}
	command.BindTo(ctx, (*context.Context)(nil))
	command.Bind(parser.Model)
	if err := command.Run(outputs{stdout, stderr}); err != nil {
		hint := ""
		switch {
		case errors.Is(err, nats.ErrNoServers):
			hint = "Start the NATS server of --nats, or correct its address."
		case errors.Is(err, nats.ErrAuthorization):
			hint = "That NATS refuses a user of handoffd: correct --user and --password (with --access " +
				"also --clients-user and --clients-password), --creds or --nkey."
		}
		printFailure(stderr, args, err, hint)
		if errors.Is(err, errSettings) {
			return 2
		}
		return 1
	}
	return 0
}

// printFailure prints why the program ends, and what to do. It prints a line of JSON if the log is
// in JSON, even if the parser has refused args.
func printFailure(stderr io.Writer, args []string, err error, hint string) {
	if logFormat(args) == jsonLog {
		attrs := []any{"error", err.Error()}
		if hint != "" {
			attrs = append(attrs, "hint", hint)
		}
		newLogger(stderr, jsonLog, slog.LevelInfo).Error("handoffd ends", attrs...)
		return
	}
	fmt.Fprintln(stderr, "handoffd:", err)
	if hint != "" {
		fmt.Fprintln(stderr, hint)
	}
}

// logFormat returns the value of --log-format in args, or else of its variable; empty if there is
// none.
func logFormat(args []string) string {
	const flag = "--log-format"
	format := os.Getenv(variablePrefix + "LOG_FORMAT")
	for i, arg := range args {
		if value, given := strings.CutPrefix(arg, flag+"="); given {
			format = value
		}
		if arg == flag && i+1 < len(args) {
			format = args[i+1]
		}
	}
	return format
}

// helpCommand is only for the list of commands: run replaces help by --help.
type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as restore; without it the help of all."`
}

type versionCommand struct{}

func (versionCommand) Run(s outputs) error {
	_, err := fmt.Fprintln(s.out, "handoffd", cmdline.Version())
	return err
}

type completionCommand struct {
	cmdline.Completion `embed:""`
}

func (c completionCommand) Run(s outputs, model *kong.Application) error {
	return c.Print(s.out, model, nil)
}

type passwordCommand struct {
	Token bool `help:"Draw a token instead, with which the host of a language model signs in at /mcp, and print it with the hash for tokens."`
}

// hashCost makes a guess take about a tenth of a second.
const hashCost = 11

// Run prints a password, or a token, and its hash. Neither is kept anywhere.
func (c passwordCommand) Run(s outputs) error {
	if c.Token {
		token, hash := access.NewToken()
		_, err := fmt.Fprintf(s.out, "token      %s\ntokenHash  %s\n", token, hash)
		return err
	}
	password := rand.Text()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), hashCost)
	if err != nil {
		return fmt.Errorf("password: %w", err)
	}
	_, err = fmt.Fprintf(s.out, "password      %s\npasswordHash  %s\n", password, hash)
	return err
}

// embeddedFlags are the flags that are about an embedded NATS alone.
var embeddedFlags = []string{"listen", "data", "sync", "sync-interval", "min-free-disk"}

// warnEmbedded warns about embeddedFlags that the command line or the environment gives beside --nats. so says what
// follows from it.
func warnEmbedded(logger *slog.Logger, line *kong.Context, so string) {
	var given []string
	for _, flag := range line.Flags() {
		isGiven := slices.ContainsFunc(flag.Envs, func(name string) bool { return os.Getenv(name) != "" }) ||
			slices.ContainsFunc(line.Path, func(on *kong.Path) bool { return on.Flag == flag })
		if isGiven && slices.Contains(embeddedFlags, flag.Name) {
			given = append(given, "--"+flag.Name)
		}
	}
	if given != nil {
		logger.Warn("settings of an embedded NATS have no effect with --nats, which has an address, a directory and a "+
			"disk of its own. "+so, "settings", given)
	}
}

// variablePrefix begins the environment variables of handoffd, and testPrefix those for tests.
const (
	variablePrefix = "HANDOFFD_"
	testPrefix     = variablePrefix + "TEST_"
)

// unknownVariables returns the variables with handoffd's prefix and a value that belong to no flag, in
// alphabetical order: misspelt ones, or ones of another version. The passwords of the server's own
// users in the configuration of a NATS are known.
func unknownVariables(environ []string, model *kong.Application) (unknown []string) {
	known := map[string]bool{}
	for _, name := range []string{access.EngineUser, access.AskingUser} {
		known[(&access.User{Name: name}).PasswordVariable()] = true
	}
	for _, node := range append(model.Leaves(false), model.Node) {
		for _, flag := range node.Flags {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, variablePrefix) && !strings.HasPrefix(name, testPrefix) &&
			value != "" && !known[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

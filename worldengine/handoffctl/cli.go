package handoffctl

import (
	"context"
	_ "embed" // help.md
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/nats-io/nats.go"

	"worldengine/worldengine/client"
	"worldengine/worldengine/internal/kit/cmdline"
	"worldengine/worldengine/internal/kit/natsconn"
	"worldengine/worldengine/messages"
	"worldengine/worldengine/wire"
)

// commandLine is the whole command line. --help prints a command's flags and its section of help.md: the
// effect, and an example.
type commandLine struct {
	Global globalFlags `embed:""`

	Send   sendCommand   `cmd:"" help:"Send one handoff and show its result."`
	Replay replayCommand `cmd:"" help:"Send the handoffs of fixture files and compare the results with the expected ones."`
	Record recordCommand `cmd:"" help:"Make fixtures of the handoffs that a world has judged."`
	New    newCommand    `cmd:"" help:"Make a valid handoff for a town without an agent."`
	Verify verifyCommand `cmd:"" help:"Check handoffs, results and snapshots offline."`
	Town   townCommands  `cmd:"" help:"Show, put and patch towns."`
	Result struct {
		Get resultGetCommand `cmd:"" help:"Show the result of an accepted handoff by its idempotency key."`
	} `cmd:"" help:"Look up results."`
	Run struct {
		Get    runGetCommand    `cmd:"" help:"Show the status and the outcome of a run."`
		List   runListCommand   `cmd:"" help:"List runs by town and time."`
		Events runEventsCommand `cmd:"" help:"Show the events of a run."`
		Cancel runCancelCommand `cmd:"" help:"Cancel a run that waits."`
		Retry  runRetryCommand  `cmd:"" help:"Judge a handoff again whose run failed because no plugin or console could be reached."`
	} `cmd:"" help:"List, show, cancel and retry runs."`
	Pause  pauseCommand  `cmd:"" help:"Pause a town, or the world: its handoffs wait."`
	Resume resumeCommand `cmd:"" help:"End the pause of a town, or of the world."`

	Approvals approvalsCommand `cmd:"" help:"List the proposals that wait for a person's approval."`
	Approve   approveCommand   `cmd:"" help:"Approve a proposal that waits."`
	Reject    rejectCommand    `cmd:"" help:"Deny a proposal that waits."`

	Status statusCommand `cmd:"" help:"Show the state of the world, or the pause of a town."`
	Stats  statsCommand  `cmd:"" help:"Show the statistics of the server since its start."`
	Plugin struct {
		Check pluginCheckCommand `cmd:"" help:"Check that a game server's plugin keeps each rule of the protocol."`
		Try   pluginTryCommand   `cmd:"" help:"Stand in for a game server's plugin and answer its commands by hand."`
	} `cmd:"" help:"For authors of game-server plugins."`
	Watch  watchCommand `cmd:"" help:"Show the run events or the alerts of the world as they come."`
	Alerts struct {
		List alertsListCommand `cmd:"" help:"List alerts, the newest first."`
		Ack  alertsAckCommand  `cmd:"" help:"Acknowledge alerts that an operator has dealt with."`
	} `cmd:"" help:"List and acknowledge the alerts of the world."`
	DeadLetter struct {
		List   deadLetterListCommand   `cmd:"" help:"List the events that could not be published on the bus."`
		Show   deadLetterShowCommand   `cmd:"" help:"Show a dead letter with its body."`
		Replay deadLetterReplayCommand `cmd:"" help:"Publish dead letters on the bus."`
	} `cmd:"" name:"deadletter" help:"List, show and replay the events that could not be published on the bus."`
	WhoAmI     whoAmICommand     `cmd:"" name:"whoami" help:"Show the rights of this user."`
	Fsck       fsckCommand       `cmd:"" help:"Check the log of the world, and put damaged towns back."`
	Backup     backupCommand     `cmd:"" help:"Copy a world while it is served."`
	MCP        mcpCommand        `cmd:"" name:"mcp" help:"Serve the Model Context Protocol on standard input and output, for language models."`
	Bench      benchCommand      `cmd:"" help:"Measure executed handoffs against plain requests and bare appends."`
	World      worldCommands     `cmd:"" help:"List, create and remove worlds, and change the settings of one."`
	Help       helpCommand       `cmd:"" help:"Show the help of a command."`
	Version    versionCommand    `cmd:"" help:"Print the version."`
	Schema     schemaCommand     `cmd:"" help:"Print a JSON Schema of a payload, or list their names."`
	Completion completionCommand `cmd:"" help:"Print the completion script of a shell."`
}

// globalFlags are the flags of every command.
type globalFlags struct {
	Server     string           `short:"s" help:"URL of the NATS server, ${default} by default." default:"nats://127.0.0.1:4222" env:"NATS_URL" placeholder:"URL" group:"connection"`
	Connection natsconn.Options `embed:""`
	World      string           `help:"Name of the world, ${default} by default." default:"main" env:"HANDOFFCTL_WORLD" placeholder:"NAME"`
	Timeout    time.Duration    `help:"Time limit of a request, including its repetitions after 429 and 503." default:"5s"`
	Version    kong.VersionFlag `help:"Print the version."`
	Output     string           `short:"o" help:"Output format: text for people, json for scripts, or raw for the bytes of the server's answer." enum:"text,json,raw" default:"text"`
}

// Validate returns an error for values that no command can use.
func (f *globalFlags) Validate() error {
	if f.Timeout <= 0 {
		return fmt.Errorf("--timeout must be above 0, not %s", f.Timeout)
	}
	if err := wire.ValidateWorld(f.World); err != nil {
		return fmt.Errorf("--world: %s", sentence(err))
	}
	return nil
}

// positive is the value of a flag that is above 0.
type positive int

// Validate returns an error for a value below 1.
func (n positive) Validate() error {
	if n < 1 {
		return fmt.Errorf("must be at least 1, not %d", n)
	}
	return nil
}

type limitFlag struct {
	Limit uint `help:"Maximum number of rows; 0 for all." default:"0" placeholder:"N"`
}

// first returns the first n rows of a list; all for 0. With an error it returns those before it.
func first[T any](rows iter.Seq2[T, error], n uint) ([]T, error) {
	list := []T{}
	for row, err := range rows {
		if err != nil {
			return list, err
		}
		if list = append(list, row); uint(len(list)) == n {
			break
		}
	}
	return list, nil
}

const description = `For authors of agents and plugins of a world engine, for testers, and for
operators.

Exit status: 0 done; 1 the command ran and found something wrong: an expectation failed, a document
is invalid, status needs attention, fsck found a difference, a backup is incomplete; 2 the command
line, or a file that it names, cannot be used; 3 the server refused (4xx); 4 the server could not be
reached or is in trouble (5xx).

On a terminal a status has a colour: green for executed, red for rejected or failed, yellow for
others. There is no colour if $NO_COLOR is set or TERM=dumb. On a terminal ids are cut to their
first 8 characters.`

// newParser makes the parser of the command line. kong calls exit after --help and --version,
// instead of ending the program.
func newParser(line *commandLine, stdout, stderr io.Writer, exit func(int)) *kong.Kong {
	parser := kong.Must(line,
		kong.Name("handoffctl"), kong.Description(description),
		kong.Vars{"version": "handoffctl " + cmdline.Version()}, proposalVars(),
		kong.Writers(stdout, stderr), kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.ExplicitGroups([]kong.Group{{Key: "connection",
			Title: "Connection, as with the nats command:"}}))
	for _, command := range parser.Model.Leaves(false) {
		command.Detail = helpTexts[commandName(command)]
	}
	return parser
}

//go:embed help.md
var helpPage string

// helpTexts are the sections of help.md by their headings, the names of the commands.
var helpTexts = func() map[string]string {
	texts := map[string]string{}
	for _, section := range strings.Split(helpPage, "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		texts[name] = strings.TrimSpace(text)
	}
	return texts
}()

// commandName returns the words of a command, such as town get.
func commandName(command *kong.Node) string {
	words, _, _ := strings.Cut(strings.TrimPrefix(command.FullPath(), "handoffctl "), " <")
	return words
}

type helpCommand struct {
	Command []string `arg:"" optional:"" help:"The command, such as send or town get; all commands by default."`
}

func (c *helpCommand) Run(a *app, line *kong.Context) error {
	if _, err := line.Kong.Parse(append(c.Command, "--help")); !a.helped {
		return notUnderstood(err)
	}
	return nil
}

type versionCommand struct{}

func (versionCommand) Run(a *app) error {
	version := map[string]string{"version": cmdline.Version()}
	return a.print(version, "version", version)
}

type completionCommand struct {
	Within             time.Duration `help:"Time limit of a search for towns or worlds, which blocks the shell, for the connection and for the answer." default:"1s"`
	cmdline.Completion `embed:""`
}

func (c completionCommand) Run(ctx context.Context, a *app, line *kong.Context) error {
	return c.Print(a.out, line.Model, func(name, begins string) []string {
		if !slices.Contains([]string{"town", "world", "worlds"}, name) {
			return nil
		}
		server := c.server(a, line.Kong)
		switch {
		case server == nil:
			return nil
		case name == "town":
			return idsOf(server.Towns(ctx, messages.TownList{Text: begins, Limit: maxTowns}),
				func(t *client.ListedTown) string { return t.TownID })
		}
		return idsOf(server.Worlds(ctx), func(w *client.ListedWorld) string { return w.World })
	})
}

// server returns a client of the server and the world that the words name; nil if it cannot be reached in
// time.
func (c completionCommand) server(a *app, parser *kong.Kong) *client.Client {
	line, err := kong.Trace(parser, c.Words[:len(c.Words)-1]) // the line is not complete, so no Parse
	if err != nil || line.Reset() != nil {
		return nil
	}
	if _, err := line.Apply(); err != nil {
		return nil
	}
	nc, err := a.dial("handoffctl", nats.Timeout(c.Within))
	if err != nil {
		return nil
	}
	a.flags.Timeout = c.Within
	return a.client(nc)
}

// maxTowns bounds the number of towns, or worlds, in a search for completions.
const maxTowns = 1000

// unquoted matches the ids of towns that no shell requires to be quoted.
var unquoted = regexp.MustCompile(`^[\pL\pN_][\pL\pN_.-]*$`)

// idsOf returns the ids of rows that need no quotes, up to the first error or the bound.
func idsOf[Row any](rows iter.Seq2[Row, error], id func(*Row) string) (ids []string) {
	found, _ := first(rows, maxTowns)
	for _, row := range found {
		if unquoted.MatchString(id(&row)) {
			ids = append(ids, id(&row))
		}
	}
	return ids
}

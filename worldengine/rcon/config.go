package rcon

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/platform"
)

// ConfigName names the configuration file in a *schemas.ValidationError.
const ConfigName schemas.Name = "rcon-config"

// The bounds of a Config.
const (
	DefaultTimeout = 5 * time.Second
	MaxTimeout     = time.Minute
	// MaxCommands is the most commands of one proposal type.
	MaxCommands = 32
	// MaxText is the size of the longest text in Names, in bytes.
	MaxText = 256
)

// Config is a console's address and its commands. New checks it.
type Config struct {
	// Address is the host and the rcon.port of the game server. RCON does not encrypt the password.
	Address string
	// Password is the server's rcon.password.
	Password schemas.Secret
	// Timeout bounds each step: connecting, the login, each command. 0 means DefaultTimeout.
	Timeout time.Duration
	// Names maps ids, titles and names to their texts in commands.
	Names map[string]string
	// Commands has the console commands of each proposal type, in order. Commands of other types are
	// refused.
	Commands map[handoff.ProposalType][]Template
}

// Template is one console command.
type Template struct {
	// Run is the command, without a slash. {town}, {argument} and other placeholders stand for values.
	Run string
	// Expect is a regular expression that the response matches if and only if the command was done.
	// Line ends at the end of the response are removed first. With "" every response matches.
	Expect string
}

// maxFile bounds the size of the configuration file and of the password file.
const maxFile = 1 << 20

// ReadConfig reads a configuration file and its password. The password is in a file, relative to
// the configuration's directory, or in an environment variable, which lookup (os.LookupEnv) reads.
// The error of an invalid file is a *schemas.ValidationError.
func ReadConfig(file string, lookup func(string) (string, bool)) (Config, error) {
	data, err := platform.ReadFile(file, maxFile)
	if err != nil {
		return Config{}, fmt.Errorf("rcon: the configuration cannot be read: %w", err)
	}
	cfg, source, err := parseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("rcon: the configuration %s is wrong: %w", file, err)
	}
	if cfg.Password, err = source.read(filepath.Dir(file), lookup); err != nil {
		return Config{}, fmt.Errorf("rcon: the configuration %s gives no password: %w", file, err)
	}
	return cfg, nil
}

// passwordSource names the file or the environment variable with the password; the other name is
// "".
type passwordSource struct{ file, env string }

func (s passwordSource) read(
	dir string, lookup func(string) (string, bool),
) (schemas.Secret, error) {
	m, path, value := newMembers(), "/passwordEnv", ""
	if s.file == "" {
		value, _ = lookup(s.env)
	} else {
		path = "/passwordFile"
		if !filepath.IsAbs(s.file) {
			s.file = filepath.Join(dir, s.file)
		}
		data, err := platform.ReadFile(s.file, maxFile)
		if err != nil {
			m.Add(path, "must be a file that can be read: %s", err)
			return "", m.Err()
		}
		value = strings.TrimRight(string(data), "\r\n")
	}
	if problem := checkPassword(schemas.Secret(value)); problem != "" {
		m.Add(path, "must lead to a password, which %s", problem)
	}
	return schemas.Secret(value), m.Err()
}

func newMembers() *schemas.Members {
	return &schemas.Members{File: ConfigName, Passwords: "passwordFile or passwordEnv"}
}

// parseConfig reads a configuration and checks the types of its members. New checks their values.
func parseConfig(data []byte) (Config, passwordSource, error) {
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err != nil {
		return Config{}, passwordSource{}, err
	}
	m := newMembers()
	o := m.Object(tree, "", "address", "passwordFile", "passwordEnv", "timeoutMs",
		"names", "commands")
	cfg := Config{
		Address: m.Text(o, "", "address", true), Names: map[string]string{},
		Commands: map[handoff.ProposalType][]Template{},
	}
	source := passwordSource{m.Text(o, "", "passwordFile", false),
		m.Text(o, "", "passwordEnv", false)}
	if (source.file == "") == (source.env == "") {
		m.Add("", "must have either passwordFile or passwordEnv")
	}
	if timeout, given := o["timeoutMs"]; given {
		ms, _ := timeout.(float64)
		if most := MaxTimeout.Milliseconds(); ms != math.Trunc(ms) || ms < 1 || ms > float64(most) {
			m.Add("/timeoutMs", "must be an integer in 1..%d", most)
		}
		cfg.Timeout = time.Duration(ms) * time.Millisecond
	}
	if names, given := o["names"]; given {
		names := m.Object(names, "/names")
		for name := range names {
			cfg.Names[name] = m.Text(names, "/names", name, true)
		}
	}
	if commands, given := o["commands"]; given {
		for name, list := range m.Object(commands, "/commands") {
			cfg.Commands[handoff.ProposalType(name)] = templates(m, list,
				schemas.Pointer("commands", name))
		}
	} else {
		m.Absent(o, "", "commands", true)
	}
	return cfg, source, m.Err()
}

func templates(m *schemas.Members, v any, path string) []Template {
	list, ok := v.([]any)
	if !ok {
		m.Add(path, "must be a list of commands")
		return nil
	}
	templates := make([]Template, len(list))
	for i, element := range list {
		at := path + schemas.Pointer(i)
		o := m.Object(element, at, "run", "expect")
		templates[i] = Template{Run: m.Text(o, at, "run", true),
			Expect: m.Text(o, at, "expect", false)}
	}
	return templates
}

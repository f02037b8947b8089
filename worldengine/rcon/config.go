package rcon

import (
	"fmt"
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

// Config has the console to use and the commands to run there. New checks it.
type Config struct {
	// Address is the host and the rcon.port of the game server. The password goes there in clear.
	Address string
	// Password is the server's rcon.password.
	Password Secret
	// Timeout bounds connecting, the login, and each command, one by one. 0 means DefaultTimeout.
	Timeout time.Duration
	// Names has texts that may stand in a command, by the id, title or name that they stand for.
	Names map[string]string
	// Commands has the console commands of each proposal type, in order. A type without any is
	// refused.
	Commands map[handoff.ProposalType][]Template
}

// Template is one console command.
type Template struct {
	// Run is the command, without a slash. {town}, {argument} and the like stand for values.
	Run string
	// Expect is a regular expression that the response, without line ends at its end, matches if
	// and only if the command was done. With "" every response means that it was done.
	Expect string
}

// maxFile bounds a configuration and the file of its password.
const maxFile = 1 << 20

// ReadConfig reads a configuration file and the password that it points to, a file (seen from the
// directory of the configuration) or an environment variable, which lookup gives, as os.LookupEnv
// does. Errors in the file are a *schemas.ValidationError.
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

// passwordSource is the file or the environment variable with the password; the other is "".
type passwordSource struct{ file, env string }

func (s passwordSource) read(dir string, lookup func(string) (string, bool)) (Secret, error) {
	found := newShape()
	path, value := "/passwordEnv", ""
	if s.file == "" {
		value, _ = lookup(s.env)
	} else {
		path = "/passwordFile"
		if !filepath.IsAbs(s.file) {
			s.file = filepath.Join(dir, s.file)
		}
		data, err := platform.ReadFile(s.file, maxFile)
		if err != nil {
			found.Add(path, "must be a file that can be read: %s", err)
			return "", found.Err()
		}
		value = strings.TrimRight(string(data), "\r\n")
	}
	if problem := checkPassword(Secret(value)); problem != "" {
		found.Add(path, "must lead to a password, which %s", problem)
	}
	return Secret(value), found.Err()
}

// parseConfig reads the shape of a configuration. New checks its values.
func parseConfig(data []byte) (Config, passwordSource, error) {
	tree, err := schemas.Decode(data, schemas.Limits{})
	if err != nil {
		return Config{}, passwordSource{}, err
	}
	s := newShape()
	o := s.Object(tree, "", "address", "passwordFile", "passwordEnv", "timeoutMs",
		"names", "commands")
	cfg := Config{
		Address: s.Text(o, "", "address", true),
		Timeout: time.Duration(s.integer(o, "", "timeoutMs",
			MaxTimeout.Milliseconds())) * time.Millisecond,
		Names:    map[string]string{},
		Commands: map[handoff.ProposalType][]Template{},
	}
	source := passwordSource{s.Text(o, "", "passwordFile", false),
		s.Text(o, "", "passwordEnv", false)}
	if (source.file == "") == (source.env == "") {
		s.Add("", "must have either passwordFile or passwordEnv")
	}
	names := s.member(o, "", "names", false)
	for name := range names {
		cfg.Names[name] = s.Text(names, "/names", name, true)
	}
	for name, list := range s.member(o, "", "commands", true) {
		path := schemas.Pointer("commands", name)
		cfg.Commands[handoff.ProposalType(name)] = s.templates(list, path)
	}
	return cfg, source, s.Err()
}

package rcon

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"worldengine/handoff"
	"worldengine/schemas"
	"worldengine/worldengine/internal/kit/platform"
	"worldengine/worldengine/internal/kit/secret"
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
	Address string `json:"address"`
	// Password is the server's rcon.password.
	Password secret.Text `json:"-"`
	// Timeout bounds each step: connecting, the login, each command. 0 means DefaultTimeout.
	Timeout time.Duration `json:"-"`
	// Names maps ids, titles and names to their texts in commands.
	Names map[string]string `json:"names"`
	// Commands has the console commands of each proposal type, in order. Commands of other types are
	// refused.
	Commands map[handoff.ProposalType][]Template `json:"commands"`
}

// Template is one console command.
type Template struct {
	// Run is the command, without a slash. {town}, {argument} and other placeholders stand for values.
	Run string `json:"run"`
	// Expect is a regular expression that the response matches if and only if the command was done.
	// Line ends at the end of the response are removed first. With "" every response matches.
	Expect string `json:"expect"`
}

// maxFile bounds the size of the configuration file and of the password file.
const maxFile = 1 << 20

// ReadConfig reads a configuration file and its password. The password is in a file, relative to
// the configuration's directory, or in an environment variable, which lookup (os.LookupEnv) reads.
func ReadConfig(file string, lookup func(string) (string, bool)) (Config, error) {
	data, err := platform.ReadFile(file, maxFile)
	if err != nil {
		return Config{}, fmt.Errorf("rcon: the configuration cannot be read: %w", err)
	}
	var read struct {
		Config
		TimeoutMs    int32  `json:"timeoutMs"`
		PasswordFile string `json:"passwordFile"`
		PasswordEnv  string `json:"passwordEnv"`
	}
	if err := json.Unmarshal(data, &read, json.RejectUnknownMembers(true)); err != nil {
		return Config{}, fmt.Errorf("rcon: the configuration %s is wrong: %w", file,
			schemas.Unread(ConfigName, err))
	}
	password, _ := lookup(read.PasswordEnv)
	switch named := read.PasswordFile; {
	case (named == "") == (read.PasswordEnv == ""):
		return Config{}, fmt.Errorf("rcon: the configuration %s must have either passwordFile or "+
			"passwordEnv", file)
	case named != "":
		if !filepath.IsAbs(named) {
			named = filepath.Join(filepath.Dir(file), named)
		}
		data, err := platform.ReadFile(named, maxFile)
		if err != nil {
			return Config{}, fmt.Errorf("rcon: the passwordFile of the configuration %s cannot be "+
				"read: %w", file, err)
		}
		password = strings.TrimRight(string(data), "\r\n")
	}
	if !isPassword(password) {
		return Config{}, fmt.Errorf("rcon: the passwordFile or passwordEnv of the configuration %s "+
			"must lead to a password of 1 to %d bytes in one line", file, MaxCommand)
	}
	read.Password = secret.Text(password)
	read.Timeout = time.Duration(read.TimeoutMs) * time.Millisecond
	return read.Config, nil
}

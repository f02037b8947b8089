package rcon

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"worldengine/handoff"
	"worldengine/schemas"
)

// compile checks the values of cfg and parses its templates. The error is a *schemas.ValidationError
// with the paths of a configuration file.
func compile(cfg *Config) (map[handoff.ProposalType][]template, error) {
	m := &schemas.Members{Schema: ConfigName}
	if !isAddress(cfg.Address) {
		m.Add("/address", "must be a host and a port in 1..65535, such as 127.0.0.1:25575")
	}
	if !isPassword(string(cfg.Password)) {
		m.Add("/password", "must be 1 to %d bytes of text in one line", MaxCommand)
	}
	if cfg.Timeout < 0 || cfg.Timeout > MaxTimeout {
		m.Add("/timeoutMs", "must be in 1..%d", MaxTimeout.Milliseconds())
	}
	for name, text := range cfg.Names {
		if !isText(text) {
			m.Add(schemas.Pointer("names", name),
				"must be 1 to %d bytes of letters, digits, single "+
					"spaces between words, and the characters %s", MaxText, punctuation)
		}
	}
	if len(cfg.Commands) == 0 {
		m.Add("/commands", "must have the commands of at least one proposal type")
	}
	compiled := make(map[handoff.ProposalType][]template, len(cfg.Commands))
	for t, list := range cfg.Commands {
		compiled[t] = compileType(m, t, list)
	}
	return compiled, m.Err()
}

func compileType(m *schemas.Members, t handoff.ProposalType, list []Template) []template {
	path := schemas.Pointer("commands", string(t))
	if !slices.Contains(handoff.ProposalTypes(), t) {
		m.Add(path, "is no proposal type; there are %v", handoff.ProposalTypes())
		return nil
	}
	if len(list) < 1 || len(list) > MaxCommands {
		m.Add(path, "must have 1 to %d commands; leave the type out to refuse it", MaxCommands)
	}
	compiled := make([]template, len(list))
	for i, configured := range list {
		at := path + schemas.Pointer(i)
		err := checkTemplate(configured.Run, t)
		if compiled[i].run = configured.Run; err != nil {
			m.Add(at+"/run", "%s", err)
		}
		if configured.Expect == "" {
			continue
		}
		if compiled[i].expect, err = regexp.Compile(configured.Expect); err != nil {
			m.Add(at+"/expect", "must be a regular expression: %s", err)
		}
	}
	return compiled
}

func isAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	n, notANumber := strconv.ParseUint(port, 10, 16)
	return err == nil && notANumber == nil && host != "" && n > 0
}

func isPassword(text string) bool {
	return text != "" && len(text) <= MaxCommand && isPrintable(text)
}

// isPrintable reports whether text is UTF-8 without control and format characters, which could end a
// line or hide text.
func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsGraphic(r)
	})
}

// punctuation has the characters besides letters and digits that the texts of the names may have.
// None of them quotes, escapes, selects or ends anything on a console.
const punctuation = "_-.,:!?()+’"

// isText reports whether text has only words that have no other meaning on a console.
func isText(text string) bool {
	for word := range strings.SplitSeq(text, " ") {
		if word == "" || strings.ContainsFunc(word, func(r rune) bool {
			return !unicode.In(r, unicode.Letter, unicode.Mark, unicode.Digit) &&
				!strings.ContainsRune(punctuation, r)
		}) {
			return false
		}
	}
	return utf8.ValidString(text) && len(text) <= MaxText
}

// isID reports whether text is 1 to 64 characters of A-Z, a-z, 0-9, _ and -.
func isID(text string) bool {
	return len(text) >= 1 && len(text) <= maxID && !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			r == '_' || r == '-')
	})
}

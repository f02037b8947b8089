package rcon

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/worldengine/internal/core/apply"
	"worldengine/worldengine/internal/core/town"
)

const (
	// maxID is the length of the longest id that needs no entry in the names.
	maxID = 64
	// maxNumber is the length of the longest number: a day up to 2^53-1.
	maxNumber = 16
)

// placeholder is a value in a command. Exactly one of text and number is set.
type placeholder struct {
	// text comes from outside: it needs an entry in the names, or has to be an id.
	text func(*apply.Command) string
	// number comes from the town's expected state after the command.
	number func(*apply.Command) int64
	// targets are the targets of the proposal types whose commands have the value; nil for all types.
	targets []handoff.Target
}

// placeholders are all placeholders, by their names in braces.
var placeholders = map[string]placeholder{
	"town":     {text: func(c *apply.Command) string { return c.TownID }},
	"actor":    {text: func(c *apply.Command) string { return c.ActorID }},
	"argument": {text: func(c *apply.Command) string { return c.Argument() }},
	"run":      {text: func(c *apply.Command) string { return c.RunID }},
	"title":    {text: title, targets: []handoff.Target{handoff.SideQuest, handoff.Project}},
	"day":      {number: func(c *apply.Command) int64 { return c.ExpectedSnapshot.Day }},
	"progress": {number: progress, targets: []handoff.Target{handoff.Project}},
	"threat":   {number: pressure(func(p town.Pressure) float64 { return p.Threat })},
	"scarcity": {number: pressure(func(p town.Pressure) float64 { return p.Scarcity })},
	"hope":     {number: pressure(func(p town.Pressure) float64 { return p.Hope })},
	"dread":    {number: pressure(func(p town.Pressure) float64 { return p.Dread })},
}

// title is the title of the command's mission, or the name of its project.
func title(c *apply.Command) string {
	if c.Type.Spec().Target == handoff.Project {
		return project(c).Name
	}
	if mission := c.ExpectedSnapshot.Mission; mission != nil {
		return mission.Title
	}
	return ""
}

func progress(c *apply.Command) int64 { return percent(project(c).Progress) }

func pressure(of func(town.Pressure) float64) func(*apply.Command) int64 {
	return func(c *apply.Command) int64 { return percent(of(c.ExpectedSnapshot.Pressure)) }
}

// project is the command's project; the zero Project if there is none.
func project(c *apply.Command) town.Project {
	for _, p := range c.ExpectedSnapshot.Projects {
		if p.ID == c.Argument() {
			return p
		}
	}
	return town.Project{}
}

// percent returns a value of 0..1 as a whole number of percent.
func percent(value float64) int64 { return int64(math.Round(100 * value)) }

// template is a command with placeholders.
type template struct {
	run    string
	expect *regexp.Regexp // nil if every response matches
}

// inBraces matches a word in braces, which is a placeholder, perhaps a misspelt one: neither JSON nor
// the game's own notation has such a word. Other braces are literal text.
var inBraces = regexp.MustCompile(`\{ *[A-Za-z][A-Za-z0-9_.-]* *\}`)

// checkTemplate checks a command for proposals of type t. Without an error the command renders as one
// line of up to MaxCommand bytes, and no value chooses the command.
func checkTemplate(run string, t handoff.ProposalType) error {
	if !isPrintable(run) {
		return fmt.Errorf("must be text in one line, without control characters")
	}
	if run == "" || !isID(run[:1]) {
		return fmt.Errorf(
			"must begin with the name of a command, without a slash or space before it")
	}
	longest := len(run)
	for _, word := range inBraces.FindAllString(run, -1) {
		p, ok := placeholders[strings.Trim(word, "{}")]
		if !ok || !p.appliesTo(t) {
			return fmt.Errorf("has %s, but commands of this type have only %s", word, placeholderNames(t))
		}
		longest += p.maxSize() - len(word)
	}
	if longest > MaxCommand {
		return fmt.Errorf("must have at most %d bytes, but may have %d with its values",
			MaxCommand, longest)
	}
	return checkNames(run)
}

// checkNames refuses a placeholder in the name of the command, or of a command after the word
// "run".
func checkNames(run string) error {
	words := strings.Fields(run)
	for i, word := range words {
		if (i == 0 || words[i-1] == "run") && inBraces.MatchString(word) {
			return fmt.Errorf("must not have %s in the place of a command's name", word)
		}
	}
	return nil
}

// appliesTo reports whether the commands of type t have the value.
func (p placeholder) appliesTo(t handoff.ProposalType) bool {
	return p.targets == nil || slices.Contains(p.targets, t.Spec().Target)
}

// maxSize returns the size of the longest value, in bytes.
func (p placeholder) maxSize() int {
	if p.text != nil {
		return max(maxID, MaxText)
	}
	return maxNumber
}

// placeholderNames lists the placeholders that commands of type t have.
func placeholderNames(t handoff.ProposalType) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(placeholders)) {
		if placeholders[name].appliesTo(t) {
			list = append(list, "{"+name+"}")
		}
	}
	return strings.Join(list, " ")
}

// render returns the console command for c. The error names a value that is not safe.
func (t *template) render(c *apply.Command, names map[string]string) (line string, err error) {
	line = inBraces.ReplaceAllStringFunc(t.run, func(word string) string {
		value, unsafe := valueOf(strings.Trim(word, "{}"), c, names)
		err = cmp.Or(err, unsafe)
		return value
	})
	return line, err
}

func valueOf(name string, c *apply.Command, names map[string]string) (string, error) {
	p := placeholders[name]
	if p.number != nil {
		return strconv.FormatInt(p.number(c), 10), nil
	}
	value := p.text(c)
	if text, ok := names[value]; ok {
		return text, nil
	}
	if !isID(value) {
		return "", fmt.Errorf("{%s} is %s, which is not 1 to %d characters of A-Z a-z 0-9 _ - "+
			"and has no entry in the names of the console's configuration", name,
			excerpt(value), maxID)
	}
	return value, nil
}

// formatting matches what servers add to a response for colours: codes of the game, and of terminals.
var formatting = regexp.MustCompile(`§[0-9A-Fa-fK-Ok-oRrXx]|\x1b\[[0-9;]*m`)

// expects reports whether a response shows that the command was done: with its colours or without.
func (t *template) expects(response string) bool {
	return t.expect == nil || t.expect.MatchString(response) ||
		t.expect.MatchString(formatting.ReplaceAllString(response, ""))
}

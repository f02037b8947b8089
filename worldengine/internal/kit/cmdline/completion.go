package cmdline

import (
	"embed"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion prints the script with which a shell completes a command line, or answers that script: the
// script calls the program with the words of the line.
type Completion struct {
	Shell string   `arg:"" help:"${enum}." enum:"bash,zsh,fish"`
	Words []string `arg:"" optional:"" help:"For the scripts: the words of a command line, behind --. The last one is completed."`
}

// scripts has a script for each shell, with PROGRAM for the program's name. Each completes file names if the
// program has no candidates.
//
//go:embed completion
var scripts embed.FS

// separators stand between a candidate and its description; bash shows none.
var separators = map[string]string{"zsh": ":", "fish": "\t"}

// Values returns the possible values of a flag or an argument by its name that begin with a text, if
// the command line declares none.
type Values func(name, begins string) []string

// Print prints the script or, given words, the candidates for the last one. values may be nil.
func (c Completion) Print(w io.Writer, app *kong.Application, values Values) error {
	text := ""
	if len(c.Words) == 0 {
		script, err := scripts.ReadFile("completion/" + c.Shell)
		if err != nil {
			return err
		}
		text = strings.ReplaceAll(string(script), "PROGRAM", app.Name)
	} else {
		for _, found := range candidates(app.Node, c.Words, values) {
			if text += found[0]; separators[c.Shell] != "" && found[1] != "" {
				text += separators[c.Shell] + brief(found[1])
			}
			text += "\n"
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

// candidates returns the words that may replace the last one, each with its help.
func candidates(node *kong.Node, words []string, values Values) [][2]string {
	last := words[len(words)-1]
	var flag *kong.Flag // whose value is the next word
	given := 0
	for _, word := range words[:len(words)-1] {
		switch child := childOf(node, word); {
		case word == "=": // bash makes three words of --flag=value
		case flag != nil:
			flag = nil
		case strings.HasPrefix(word, "-"):
			if flag = flagOf(node, word); flag != nil && (flag.IsBool() || flag.IsCounter()) {
				flag = nil
			}
		case child != nil && given == 0:
			node = child
		default:
			given++
		}
	}
	var all [][2]string
	add := func(word, help string) {
		if strings.HasPrefix(word, strings.TrimPrefix(last, "=")) {
			all = append(all, [2]string{word, help})
		}
	}
	addValues := func(before string, of *kong.Value) {
		all := of.EnumSlice()
		if of.Enum == "" && values != nil {
			all = values(of.Name, strings.TrimPrefix(strings.TrimPrefix(last, before), "="))
		}
		for _, value := range all {
			if value != "" {
				add(before+value, "")
			}
		}
	}
	name, _, assigned := strings.Cut(last, "=")
	switch {
	case flag != nil:
		addValues("", flag.Value)
	case assigned && flagOf(node, name) != nil:
		addValues(name+"=", flagOf(node, name).Value)
	case strings.HasPrefix(last, "-"):
		for _, f := range flagsOf(node) {
			add("--"+f.Name, f.Help)
			if f.Short != 0 {
				add("-"+string(f.Short), f.Help)
			}
		}
	case given < len(node.Positional):
		addValues("", node.Positional[given])
	case given == 0:
		for _, child := range node.Children {
			if !child.Hidden {
				add(child.Name, child.Help)
			}
		}
	}
	return all
}

func childOf(node *kong.Node, name string) *kong.Node {
	i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return node.Children[i]
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	all := flagsOf(node)
	i := slices.IndexFunc(all, func(f *kong.Flag) bool {
		return word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// flagsOf returns a command's flags: the default command's if none is named.
func flagsOf(node *kong.Node) []*kong.Flag {
	groups := node.AllFlags(true)
	if node.DefaultCmd != nil {
		groups = append(groups, node.DefaultCmd.Flags)
	}
	return slices.Concat(groups...)
}

// brief returns the first sentence of a help text.
func brief(help string) string {
	first, _, _ := strings.Cut(help, "\n")
	first, _, _ = strings.Cut(first, ". ")
	return strings.TrimSuffix(first, ".")
}

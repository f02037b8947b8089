package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// Man is a command that writes man pages.
type Man struct {
	Dir string `arg:"" help:"Directory for the pages; it is made where there is none."`
}

// Write writes a page for the program and one for each command, and returns their names.
func (m Man) Write(app *kong.Application, version string) ([]string, error) {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return nil, err
	}
	var written []string
	for _, p := range Pages(app, version) {
		name := filepath.Join(m.Dir, p.Name)
		if err := os.WriteFile(name, []byte(p.Text), 0o644); err != nil {
			return nil, err
		}
		written = append(written, name)
	}
	return written, nil
}

// Page is a man page.
type Page struct {
	Name string // of the file, such as handoffctl-town-get.1
	Text string
}

// Pages returns the pages of a program, in the macros of man(7): its own first, then one for each
// command that does something.
func Pages(app *kong.Application, version string) []Page {
	var pages []Page
	for _, c := range commands(app) {
		if c.path == "" || c.node.Leaf() {
			pages = append(pages, page(app, c, version))
		}
	}
	return pages
}

func page(app *kong.Application, c command, version string) Page {
	title := pageTitle(app, c)
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s\" \"%s\"\n", strings.ToUpper(roff(title)),
		roff(app.Name+" "+version), roff(app.Name))
	b.WriteString(".nh\n.ad l\n") // names are not broken
	summary, detail := c.node.Help, c.node.Detail
	if c.path == "" { // of the program the first paragraph stands for both
		summary, detail = brief(c.node.Help), c.node.Help
	}
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(title), roff(strings.TrimSuffix(summary, ".")))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roff(strings.TrimSpace(app.Name+" "+c.path)),
		roff(synopsis(c)))
	if detail != "" {
		b.WriteString(".SH DESCRIPTION\n" + prose(detail))
	}
	b.WriteString(listed(app, c))
	if len(c.node.Positional) > 0 {
		b.WriteString(".SH ARGUMENTS\n")
		for _, arg := range c.node.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(arg.Name), roff(arg.Help))
		}
	}
	own, general := split(app, c)
	b.WriteString(options("OPTIONS", own))
	if c.path == "" {
		b.WriteString(options("OPTIONS OF EVERY COMMAND", general))
	} else {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1),\nwhich has the options of every command.\n",
			roff(app.Name))
	}
	return Page{title + ".1", b.String()}
}

func pageTitle(app *kong.Application, c command) string {
	return strings.ReplaceAll(strings.TrimSpace(app.Name+" "+c.path), " ", "-")
}

// synopsis returns what stands behind a command's name.
func synopsis(c command) string {
	if !c.node.Leaf() {
		return "command [options]"
	}
	text := "[options]"
	for _, arg := range c.node.Positional {
		text += " " + arg.Summary()
	}
	return text
}

// split returns the flags of a command itself, and those of the program.
func split(app *kong.Application, c command) (own, general []*kong.Flag) {
	of := map[*kong.Flag]bool{}
	for _, f := range app.Flags {
		of[f] = true
	}
	for _, f := range c.flags {
		if of[f] {
			general = append(general, f)
		} else {
			own = append(own, f)
		}
	}
	return own, general
}

// listed lists the commands of the program on its own page.
func listed(app *kong.Application, c command) string {
	if c.path != "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(".SH COMMANDS\n")
	for _, other := range commands(app) {
		if other.path != "" && other.node.Leaf() {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(pageTitle(app, other)),
				roff(other.node.Help))
		}
	}
	return b.String()
}

func options(title string, flags []*kong.Flag) string {
	if len(flags) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, ".SH %s\n", title)
	for _, f := range flags {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(f.String()),
			roff(kong.DefaultHelpValueFormatter(f.Value)))
	}
	return b.String()
}

// prose renders paragraphs; lines that are indented by four spaces or more stay lines.
func prose(text string) string {
	var b strings.Builder
	verbatim := false
	for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		indented := strings.HasPrefix(line, "    ")
		switch {
		case verbatim && !indented:
			b.WriteString(".EE\n.RE\n")
		case indented && !verbatim:
			b.WriteString(".RS 4\n.EX\n")
		}
		verbatim = indented
		if line == "" {
			b.WriteString(".PP\n")
		} else {
			b.WriteString(roff(strings.TrimPrefix(line, "    ")) + "\n")
		}
	}
	if verbatim {
		b.WriteString(".EE\n.RE\n")
	}
	return b.String()
}

// roff renders a line of text, in which nothing is a macro.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ", `"`, `\(dq`, "…",
		`\[u2026]`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}

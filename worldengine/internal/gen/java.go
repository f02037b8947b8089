package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"worldengine/handoff"
	"worldengine/runevents"
	"worldengine/worldengine/internal/core/machine"
	"worldengine/worldengine/internal/kit/protocol"
)

// javaPackage has the tables of the Java client, one class a file.
const javaPackage = "worldengine/client/java/worldengine-client/src/main/java/worldengine/client/contract/"

// java writes the tables of the Java client. Sets that a newer server may extend are constants.
func (g *generator) java() {
	types := javaEnum{name: "ProposalType", about: "The types of a proposal, and so of a command.",
		members: []javaMember{
			{"String", "shortName", "The type for people, such as {@code advance project}."},
			{"String", "argument", "The one member of args, such as {@code projectId}."},
			{"String", "verb", "The beginning of the command, such as {@code project advance}."},
			{"java.util.List<String>", "allowed", "All values of the argument; none if it is the id of something."}}}
	for _, t := range handoff.ProposalTypes() {
		spec := t.Spec()
		types.add(string(t), spec.Does, string(t), strings.ReplaceAll(spec.Name, "-", " "), spec.Argument, spec.Verb,
			spec.Values)
	}
	verbs := javaEnum{name: "Verb", about: "The verbs: the last part of a request's subject.",
		members: []javaMember{{"boolean", "changes",
			"Whether a request must not be sent again before a look at its effect."}}}
	for _, verb := range protocol.Verbs() {
		verbs.add(string(verb), "", string(verb), protocol.LookupVerb(verb).NonIdempotent)
	}
	statuses := javaEnum{name: "RunStatus", about: "The statuses of a run."}
	for _, status := range runevents.RunStatuses() {
		statuses.add(string(status), "", string(status))
	}
	for _, enum := range []javaEnum{types, verbs, statuses, javaEvents()} {
		g.files[javaPackage+enum.name+".java"] = enum.String()
	}
	g.javaConstants()
}

func javaEvents() javaEnum {
	events := javaEnum{name: "EventType",
		about: "The known types of run events. Producers may emit others.",
		members: []javaMember{
			{"boolean", "ofRun", "Whether it is about the run: it may move the status of the run."},
			{"boolean", "ofStep", "Whether it is about a step, and so has a stepId."},
			{"boolean", "endsRun", "Whether it ends its run."},
			{"java.util.List<String>", "from", "The statuses of its run or step in which it is valid."},
			{"String", "to", "The status that follows; empty if it moves none."},
			{"boolean", "stays", "Whether the run keeps its status."}}}
	for _, t := range runevents.EventTypes(0) {
		spec := t.Spec()
		events.add(string(t), "", string(t), spec.Level == runevents.RunLevel, t.IsStepLevel(), t.EndsRun(), spec.From,
			spec.To, spec.Stays)
	}
	return events
}

func (g *generator) javaConstants() {
	errors := javaEnum{name: "ErrorCode", about: "The codes of error replies. A newer server may send others."}
	for _, e := range protocol.Errors() {
		errors.add(string(e.Code), strconv.Itoa(e.Status)+": "+e.When, string(e.Code))
	}
	alerts := javaEnum{name: "AlertCode", about: "The codes of alerts. A newer server may raise others."}
	for _, a := range protocol.Alerts() {
		alerts.add(string(a.Code), a.Means, string(a.Code))
	}
	signals := javaEnum{name: "Signal", about: "The signals of operators. A newer server may know others."}
	for _, s := range machine.Signals() {
		signals.add(string(s), "", string(s))
	}
	for _, enum := range []javaEnum{errors, alerts, signals} {
		g.files[javaPackage+enum.name+".java"] = enum.constants()
	}
}

// javaEnum is an enum whose constants have a value on the wire and further members, or a class of
// constants.
type javaEnum struct {
	name, about string
	members     []javaMember
	rows, texts string
}

type javaMember struct{ kind, name, about string }

// add adds a constant with its value on the wire and the values of the members.
func (e *javaEnum) add(name, about, wire string, values ...any) {
	constant := javaName(name)
	e.rows += fmt.Sprintf("%s    %s(%s),\n", javadoc(about), constant, javaValues(append([]any{wire}, values...)))
	e.texts += fmt.Sprintf("\n%s    public static final String %s = %q;\n", javadoc(about), constant, wire)
}

func javaValues(values []any) string {
	texts := make([]string, len(values))
	for i, value := range values {
		switch v := value.(type) {
		case string:
			texts[i] = strconv.Quote(v)
		case []string:
			texts[i] = "java.util.List.of(" + strings.Trim(list(v), "[]") + ")"
		default:
			texts[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(texts, ", ")
}

// String returns the file of an enum.
func (e javaEnum) String() string {
	var out, parameters, sets strings.Builder
	fmt.Fprintf(&out, "%spackage worldengine.client.contract;\n\n/** %s */\npublic enum %s {\n%s    ;\n\n", generated,
		e.about, e.name, e.rows)
	out.WriteString("    private final String wire;\n")
	for _, m := range e.members {
		fmt.Fprintf(&out, "    private final %s %s;\n", m.kind, m.name)
		fmt.Fprintf(&parameters, ", %s %s", m.kind, m.name)
		fmt.Fprintf(&sets, "        this.%s = %[1]s;\n", m.name)
	}
	fmt.Fprintf(&out, "\n    %s(String wire%s) {\n        this.wire = wire;\n%s    }\n", e.name, parameters.String(),
		sets.String())
	out.WriteString("\n    /** The text on the wire. */\n    public String wire() { return wire; }\n")
	for _, m := range e.members {
		fmt.Fprintf(&out, "\n    /** %s */\n    public %s %s() { return %[3]s; }\n", m.about, m.kind, m.name)
	}
	fmt.Fprintf(&out, `
    /** Returns the constant of a text on the wire; empty for one of a newer server. */
    public static java.util.Optional<%s> named(String wire) {
        for (var known : values()) {
            if (known.wire.equals(wire)) return java.util.Optional.of(known);
        }
        return java.util.Optional.empty();
    }
}
`, e.name)
	return out.String()
}

// constants returns the file of a class of constants.
func (e javaEnum) constants() string {
	return fmt.Sprintf("%spackage worldengine.client.contract;\n\n/** %s */\npublic final class %s {\n    private %[3]s() {}\n%s}\n",
		generated, e.about, e.name, e.texts)
}

var (
	joint     = regexp.MustCompile(`([a-z])([A-Z])`)
	pageLinks = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	codeSpans = regexp.MustCompile("`([^`]*)`")
)

// javaName returns the constant of a name on the wire: TOWN_GET of town.get, RUN_QUEUED of RunQueued.
func javaName(wire string) string {
	return strings.ToUpper(strings.ReplaceAll(joint.ReplaceAllString(wire, "${1}_$2"), ".", "_"))
}

// javadoc returns a comment of a constant from a text of the docs.
func javadoc(text string) string {
	if text == "" {
		return ""
	}
	text = codeSpans.ReplaceAllString(pageLinks.ReplaceAllString(text, "$1"), "{@code $1}")
	return "    /** " + strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + ". */\n"
}

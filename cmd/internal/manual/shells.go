package manual

import (
	"strings"

	"github.com/alecthomas/kong"
)

// The scripts for bash and zsh find the command that the words before the cursor name, and then
// have its lists: commands, flags, and choices, whose elements are FLAG=VALUE,… and @=VALUE,… for
// the first argument. What has no choice is a file. PROGRAM stands for the program's name.
const bashScript = `# Completion of PROGRAM for bash. To use it: source <(PROGRAM completion bash)

_PROGRAM_at() {
  case $1 in
LISTS  esac
}

_PROGRAM() {
  local cur=${COMP_WORDS[COMP_CWORD]} at= flag= given= word entry i commands flags choices words=
  local valued=VALUED
  _PROGRAM_at ''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then continue; fi
    if [[ -n $flag ]]; then flag=; continue; fi
    if [[ " $valued " == *" $word "* ]]; then flag=$word; continue; fi
    if [[ " $commands " == *" $word "* ]]; then at="${at:+$at }$word"; _PROGRAM_at "$at"; continue; fi
    if [[ $word != -* ]]; then given=1; fi
  done
  if [[ $cur == = ]]; then cur=; fi
  if [[ -z $flag && $cur == -* ]]; then
    words=$flags
  elif [[ -z $flag && -z $given && -n $commands ]]; then
    words=$commands
  elif [[ -n $flag || -z $given ]]; then
    for entry in $choices; do
      if [[ ${entry%%=*} == "${flag:-@}" ]]; then words=${entry#*=} words=${words//,/ }; fi
    done
  fi
  COMPREPLY=()
  if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$cur")); fi
}

complete -o bashdefault -o default -F _PROGRAM PROGRAM
`

// Bash returns the completion script for bash, of version 3.2 or later.
func Bash(app *kong.Application) string {
	var lists strings.Builder
	for _, c := range commands(app) {
		var under, flags []string
		for _, n := range visible(c.node) {
			under = append(under, n.Name)
		}
		for _, f := range c.flags {
			flags = append(flags, names(f)...)
		}
		lists.WriteString("    " + quoted(c.path) + ")\n      commands=" +
			quoted(strings.Join(under, " ")) +
			"\n      flags=" + quoted(strings.Join(flags, " ")) +
			"\n      choices=" + quoted(strings.Join(choiceList(c), " ")) + " ;;\n")
	}
	return strings.NewReplacer("PROGRAM", app.Name, "LISTS", lists.String(),
		"VALUED", quoted(strings.Join(valuedNames(app), " "))).Replace(bashScript)
}

// choiceList returns the choices at a command, as the scripts have them.
func choiceList(c command) []string {
	var list []string
	add := func(name string, values []string) {
		if len(values) > 0 {
			list = append(list, name+"="+strings.Join(values, ","))
		}
	}
	for _, f := range c.flags {
		for _, name := range names(f) {
			add(name, choices(f.Value))
		}
	}
	add("@", argumentChoices(c.node))
	return list
}

const zshScript = `#compdef PROGRAM
# Completion of PROGRAM for zsh. To use it: source <(PROGRAM completion zsh), behind compinit.

_PROGRAM_at() {
  case $1 in
LISTS  esac
}

_PROGRAM() {
  local at= flag= given= word entry i
  local -a commands flags choices values
  local -a valued=(VALUED)
  _PROGRAM_at ''
  for ((i = 2; i < CURRENT; i++)); do
    word=${words[i]}
    if [[ -n $flag ]]; then flag=; continue; fi
    if (( ${valued[(Ie)$word]} )); then flag=$word; continue; fi
    if [[ -n ${(M)commands:#${word}:*} ]]; then at="${at:+$at }$word"; _PROGRAM_at "$at"; continue; fi
    if [[ $word != -* ]]; then given=1; fi
  done
  if [[ -z $flag && $PREFIX == --*=* ]]; then
    flag=${PREFIX%%=*}
    compset -P '*='
  fi
  if [[ -z $flag && $PREFIX == -* ]]; then
    _describe -o flag flags
    return
  fi
  if [[ -z $flag && -z $given && $#commands -gt 0 ]]; then
    _describe command commands
    return
  fi
  for entry in $choices; do
    if [[ ( -n $flag || -z $given ) && ${entry%%=*} == "${flag:-@}" ]]; then values=(${(s:,:)entry#*=}); fi
  done
  if (( $#values )); then compadd -- $values; else _files; fi
}

if [[ ${funcstack[1]} == _PROGRAM ]]; then _PROGRAM "$@"; else compdef _PROGRAM PROGRAM; fi
`

// Zsh returns the completion script for zsh.
func Zsh(app *kong.Application) string {
	described := func(name, help string) string { return quoted(name + ":" + brief(help)) }
	var lists strings.Builder
	for _, c := range commands(app) {
		var under, flags, choices []string
		for _, n := range visible(c.node) {
			under = append(under, described(n.Name, n.Help))
		}
		for _, f := range c.flags {
			for _, name := range names(f) {
				flags = append(flags, described(name, f.Help))
			}
		}
		for _, entry := range choiceList(c) {
			choices = append(choices, quoted(entry))
		}
		lists.WriteString("    " + quoted(c.path) + ")\n      commands=(" +
			strings.Join(under, " ") +
			")\n      flags=(" + strings.Join(flags, " ") + ")\n      choices=(" +
			strings.Join(choices, " ") + ") ;;\n")
	}
	return strings.NewReplacer("PROGRAM", app.Name, "LISTS", lists.String(),
		"VALUED", strings.Join(valuedNames(app), " ")).Replace(zshScript)
}

const fishScript = `# Completion of PROGRAM for fish. To use it: PROGRAM completion fish | source

function __PROGRAM_at --description 'the command that the words before the cursor name'
    set -l at ''
    set -l value 0
    for word in (commandline -opc)[2..-1]
        if test $value = 1
            set value 0
            continue
        end
        switch $word
            case VALUED
                set value 1
                continue
        end
        switch (string trim -- "$at $word")
            case COMMANDS
                set at (string trim -- "$at $word")
        end
    end
    echo $at
end

complete -c PROGRAM -f
LISTS`

// Fish returns the completion script for fish.
func Fish(app *kong.Application) string {
	var lists strings.Builder
	var paths []string
	for _, c := range commands(app) {
		if c.path != "" {
			paths = append(paths, fishQuoted(c.path))
		}
		line := "complete -c " + app.Name + " -n " +
			fishQuoted(`test (__`+app.Name+`_at) = "`+c.path+`"`)
		for _, n := range visible(c.node) {
			lists.WriteString(line + " -a " + n.Name + " -d " + fishQuoted(brief(n.Help)) + "\n")
		}
		for _, f := range c.flags {
			lists.WriteString(line + fishFlag(f) + "\n")
		}
		switch values := argumentChoices(c.node); {
		case len(values) > 0:
			lists.WriteString(line + " -a " + fishQuoted(strings.Join(values, " ")) + "\n")
		case len(c.node.Positional) > 0:
			lists.WriteString(line + " -F\n")
		}
	}
	return strings.NewReplacer("PROGRAM", app.Name, "LISTS", lists.String(),
		"VALUED", strings.Join(valuedNames(app), " "),
		"COMMANDS", strings.Join(paths, " ")).Replace(fishScript)
}

// fishFlag returns the options of fish's complete for a flag.
func fishFlag(f *kong.Flag) string {
	text := " -l " + f.Name
	if f.Short != 0 {
		text += " -s " + string(f.Short)
	}
	switch values := choices(f.Value); {
	case len(values) > 0:
		text += " -x -a " + fishQuoted(strings.Join(values, " "))
	case valued(f):
		text += " -rF"
	}
	return text + " -d " + fishQuoted(brief(f.Help))
}

// fishQuoted returns a text as one word of fish, which knows two escapes between single quotes.
func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}

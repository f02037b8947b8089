package main

import (
	"fmt"
	"strings"
)

// term is a word with one meaning in names, comments, pages and the console.
type term struct {
	word, meaning string
	console       bool // the console's help explains it too
}

// glossary has the words of the project by the alphabet: the field's own, and few of the project alone.
var glossary = []term{
	{word: "absent plugin", meaning: "A plugin that a town needs and that does not answer: the town's commands wait for it."},
	{word: "adopt", meaning: "To start an execution of a pending command that has none, such as after a change of writer."},
	{word: "alert", meaning: "A condition that an operator should know of, with a code, a severity and something to do."},
	{word: "append authority", meaning: "The part of the writer that numbers and stores the run events of other processes."},
	{word: "approval", meaning: "A person's consent to a command, which the policy of a town can require before it is applied."},
	{word: "attempt", meaning: "One try to apply the command of a handoff; a run can have several logical attempts."},
	{word: "binding", meaning: "How the commands of a town are applied: by the built-in rules, by a plugin or over RCON."},
	{word: "claim", meaning: "The first commit of an adopted execution, after which an earlier writer loses its races for the command."},
	{word: "commit", meaning: "To append a record to the log, which makes its outcome final."},
	{word: "cursor", meaning: "A position in the log, from which a client goes on to read commits."},
	{word: "dead letter", meaning: "A run event or another message that cannot be published, kept with its error for an operator."},
	{word: "decision", meaning: "An approver's yes or no to a proposal; in placement, the act of a server for one world."},
	{word: "delivery", meaning: "A handoff on its way through the engine, from its arrival to its answer."},
	{word: "draining", meaning: "Finishing the commands that are being applied, and starting no other, before a pause or a stop."},
	{word: "duplicate", meaning: "A handoff whose idempotency key its town has accepted before."},
	{word: "engine", meaning: "The part of the writer that judges handoffs and commits the decisions of one world."},
	{word: "epoch", meaning: "The number of the state that agents decide on; an executed handoff moves its town to the next."},
	{word: "execution", meaning: "The work on the command of a pending handoff, until its outcome is committed."},
	{word: "fixture", meaning: "A recorded handoff with the town before it and the result, for a replay elsewhere."},
	{word: "game", meaning: "A plugin or a console, outside the server, that applies the commands of a town."},
	{word: "guard", meaning: "The expected last sequence of a commit's subject, without which NATS refuses the commit."},
	{word: "handoff", meaning: "An agent's order to execute one proposal in one town, with the state that the agent read."},
	{word: "handover", meaning: "A planned change of writer: one server finishes its requests and releases the lease to another."},
	{word: "idempotency key", meaning: "The name under which a handoff or a run event takes effect once, however often it is sent."},
	{word: "in doubt", meaning: "Of a command that failed, although the game may have applied it.", console: true},
	{word: "index", meaning: "The local tables that find records in the log; they are rebuilt from it if they are lost."},
	{word: "lease", meaning: "The right to be the writer of a world, which ends by itself unless its holder renews it."},
	{word: "log", meaning: "The JetStream stream with all that a world has stored; everything else is derived from it."},
	{word: "log identity", meaning: "A random name that a log gets when it is made; NATS refuses appends to another log of " +
		"the world."},
	{word: "outbox relay", meaning: "The part that copies committed run events to a stream of their own, the bus, each at " +
		"least once."},
	{word: "outcome", meaning: "The end of a handoff, with its reason: executed, or refused or failed without a change of the town."},
	{word: "pause", meaning: "A state of a town or a world in which no further command is applied."},
	{word: "pending", meaning: "Of a handoff that is accepted and whose command a game is asked to apply."},
	{word: "placement", meaning: "The decision which of several servers is the writer of which world."},
	{word: "plugin", meaning: "A program that applies commands in a game, and answers with the town's next state."},
	{word: "policy", meaning: "The commands of a town that need an approval."},
	{word: "precondition", meaning: "A condition on the state of the town that an agent attaches to its proposal."},
	{word: "projector", meaning: "The part that derives the status of runs from the run events of other processes."},
	{word: "proposal", meaning: "The command that an agent chose, with its argument, its reason and its preconditions."},
	{word: "reach", meaning: "Whether a request to apply a command has arrived at a game, may still arrive, or cannot."},
	{word: "receipt", meaning: "The stored proof that a key was accepted, which answers duplicates; also: deduplication entry."},
	{word: "record", meaning: "The content of a message of the log: an input, its outcome and its run events."},
	{word: "result", meaning: "The answer to a handoff that was judged, whose ID is a hash of its content."},
	{word: "resync", meaning: "Reading a run again, from its beginning or a snapshot, after a gap in its events."},
	{word: "revision", meaning: "A state of a town; each change makes the next.", console: true},
	{word: "run", meaning: "One delivery of a handoff, or a signal such as a pause.", console: true},
	{word: "run event", meaning: "A numbered fact about a run, a step of it or a signal, stored in the log."},
	{word: "signal", meaning: "An operator's request to pause, resume, cancel or retry, or a decision about a proposal."},
	{word: "snapshot", meaning: "The whole state of a town as JSON, named by the hash of its canonical form."},
	{word: "stale", meaning: "Decided before the town changed.", console: true},
	{word: "standby", meaning: "A server that reads a world's log along, ready to become its writer."},
	{word: "step", meaning: "One move of a town in the machine, from an input to records; in a run, a check or application."},
	{word: "stepper", meaning: "The part of the engine that has the machine make a step, and commits the records of the step."},
	{word: "tail", meaning: "The last events of a run on its own subject, from which the engine continues the run."},
	{word: "tenure", meaning: "The time in which one server is the writer of a world."},
	{word: "town", meaning: "The unit that agents govern, with one state and one command at a time."},
	{word: "town token", meaning: "The ID of a town as one token of a NATS subject."},
	{word: "verb", meaning: "A kind of request, with a subject, a schema for the request and one for the reply."},
	{word: "watermark", meaning: "The sequence up to which a reader has seen everything."},
	{word: "world", meaning: "The towns that share a log, a writer and settings."},
	{word: "writer", meaning: "The one server of a world that judges, commits and answers."},
}

// glossaryPage returns the list of docs/glossary.md.
func glossaryPage() string {
	lines := make([]string, len(glossary))
	for i, t := range glossary {
		lines[i] = fmt.Sprintf("- **%s**: %s", t.word, t.meaning)
	}
	return strings.Join(lines, "\n")
}

// words writes the words of the console's help.
func words(out *strings.Builder) {
	var pairs []string
	for _, t := range glossary {
		if t.console {
			pairs = append(pairs, fmt.Sprintf("[%q, %q]", t.word, t.meaning))
		}
	}
	constant(out, "The words that the pages use, each with its meaning.", "words", "[\n  "+strings.Join(pairs, ",\n  ")+",\n]")
}

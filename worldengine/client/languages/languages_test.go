// Package languages_test checks that the clients in all languages make the same bytes as the Go code:
// canonical JSON, hashes, ids, town tokens and idempotency keys.
//
// A language takes part with a driver: a process that reads one question a line and writes one answer
// a line, both JSON objects in UTF-8, in order, and ends at the end of its input. Only \n ends a line:
// strings have U+2028 in them. It answers with the client's own functions. "do" selects the question:
//
//	do         other members                                             answer
//	canonical  value                                                     text, hash
//	handoff    town {townId, snapshotHash, decisionEpoch}, proposal      handoff: the client's handoff of it
//	resultId   result, of revision 0 or 1                                id: the one that it must have
//	verify     result                                                    valid: whether it is an execution-result.v1
//	token      townId                                                    token
//	key        runId, stepId (of a step), logicalAttemptId, eventType,   key
//	           planId, planVersion
//
// A proposal has type, actorId, args, reason, priority, reasonTags and preconditions, and perhaps
// proposalId. Go is compared with the vectors; each language of -languages with the vectors, and with
// Go's answers about random documents.
package languages_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"worldengine/handoff"
	"worldengine/schemas"
)

var (
	languages = flag.String("languages", "",
		"the languages that are compared with Go, such as js,java; each needs its tools and its build")
	documents = flag.Int("documents", 2000, "the number of random documents")
	seed      = flag.Uint64("documents.seed", 1, "draws the random documents")
)

// drivers are the commands of the drivers, seen from this folder.
var drivers = map[string][]string{
	"java":   {"java", "-cp", "../java/plugin-check/target/plugin-check.jar", "worldengine.check.BytesDriver"},
	"js":     {"node", "../js/test/driver.mjs"},       // needs no npm ci
	"python": {"python", "../python/tests/driver.py"}, // needs nats-py and rfc8785
}

// question is a line for a driver, and the answer that it must give.
type question struct {
	name, line string
	want       map[string]any
}

func TestLanguages(t *testing.T) {
	t.Parallel()
	known := vectors(t)
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		for _, q := range known {
			require.Equal(t, text(q.want), text(answer(t, q.line)), q.name)
		}
	})
	if *languages == "" {
		return
	}
	questions := append(known, random(t, *documents)...)
	for _, language := range strings.Split(*languages, ",") {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			command := drivers[language]
			require.NotNil(t, command, "there is no driver of %s", language)
			answers := drive(t, command, questions)
			for i, q := range questions {
				require.Equal(t, text(q.want), text(decoded(t, answers[i])), "%s\n%s", q.name, q.line)
			}
			t.Logf("%d answers of %s are those of Go; documents of seed %d", len(answers), language, *seed)
		})
	}
}

// drive puts all questions to a driver, and returns its answers.
func drive(t *testing.T, command []string, questions []question) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	driver := exec.CommandContext(ctx, command[0], command[1:]...)
	driver.Stderr = os.Stderr
	stdin, err := driver.StdinPipe()
	require.NoError(t, err)
	stdout, err := driver.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, driver.Start(), "the driver does not start: install and build its language first")
	go func() {
		defer stdin.Close()
		for _, q := range questions {
			if _, err := io.WriteString(stdin, q.line+"\n"); err != nil {
				return // the driver has ended: it has too few answers
			}
		}
	}()
	var answers []string
	lines := bufio.NewScanner(stdout)
	for lines.Buffer(nil, 1<<22); lines.Scan(); {
		answers = append(answers, lines.Text())
	}
	require.NoError(t, lines.Err())
	require.NoError(t, driver.Wait())
	require.Len(t, answers, len(questions))
	return answers
}

// text returns the canonical JSON of an answer, so that answers compare whatever the order of members is.
func text(tree any) string { return string(handoff.AppendCanonical(nil, tree)) }

func decoded(t *testing.T, line string) any {
	t.Helper()
	tree, err := schemas.Decode([]byte(line), schemas.Limits{Bytes: len(line) + 1})
	require.NoError(t, err, "no JSON: %s", line)
	return tree
}

// line returns a question as a line. A value is written as it is if it is raw.
func line(do string, members ...any) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"do":%q`, do)
	for i := 0; i < len(members); i += 2 {
		fmt.Fprintf(&b, ",%q:", members[i])
		if value, isRaw := members[i+1].(raw); isRaw {
			b.WriteString(string(value))
		} else {
			b.WriteString(text(members[i+1]))
		}
	}
	return b.String() + "}"
}

// raw is JSON that is no canonical JSON.
type raw string

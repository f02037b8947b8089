package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The verbs and the codes are closed sets: Verbs and Errors have every constant, each once.
func TestVerbsAndCodesAreComplete(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, Verbs(), constants[Verb](t, "verbs.go", "Verb"))
	var codes []Code
	for _, spec := range Errors() {
		codes = append(codes, spec.Code)
	}
	require.ElementsMatch(t, codes, constants[Code](t, "errors.go", "Code"))
}

// constants returns the values of the constants of a type in a file.
func constants[T ~string](t *testing.T, file, typeName string) []T {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	var found []T
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typeName {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			found = append(found, T(value))
		}
		return true
	})
	require.NotEmpty(t, found)
	return found
}

func TestVerbOfASubject(t *testing.T) {
	t.Parallel()
	for _, verb := range Verbs() {
		require.Equal(t, verb, VerbOf(Subject("main", verb)))
	}
	require.Empty(t, VerbOf("worldengine.v1.main"))
}

// Stored streams, configurations and other programs have these names.
func TestStoredNamesAreFixed(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"WORLD_w_LOG", "WORLD_w_RUNEVENTS",
		"WORLD_w_DEADLETTER", "WORLD_w_ALERTS",
	}, Streams("w"))
	for want, got := range map[string]string{
		"WORLD_w_RESTORING":           RestoringStream("w"),
		"world.w.log.t":               LogSubject("w", "t"),
		"world.w.control":             ControlSubject("w"),
		"world.w.signal":              SignalSubject("w"),
		"world.w.run.r":               RunSubject("w", "r"),
		"world.w.restoring":           RestoringSubject("w"),
		"worldengine.v1.w.apply.t":    ApplySubject("w", "t"),
		"worldengine.v1.w.events.t":   EventsSubject("w", "t"),
		"alerts.v1.w.CODE":            AlertSubject("w", "CODE"),
		"world.w.acknowledged.7":      AcknowledgedSubject("w", "7"),
		"deadletter.v1.w.S.7.0":       DeadLetterSubject("w", "S", "7", "0"),
		"clients.worldengine.v1.w.x":  CrossedSubject("worldengine.v1.w.x"),
		"astray.runevents.v2.w.$1.$2": AstraySubject("runevents.v2.w.*.*"),
		"astray.alerts.v1.w.>":        AstraySubject("alerts.v1.w.>"),
		"Nats-Service-Error-Code":     ErrorCodeHeader,
		"Nats-Service-Error":          ErrorHeader,
		"Nats-Request-Info":           UserHeader,
		"Actor-Id":                    ActorHeader,
		"At":                          AtHeader,
		"Town-Token":                  TownTokenHeader,
		"Key":                         KeyHeader,
		"Result":                      ResultHeader,
		"Run-Seqs":                    RunSeqsHeader,
		"Run-Moves":                   RunMovesHeader,
		"Type":                        TypeHeader,
		"Pending":                     PendingHeader,
		"Paused":                      PausedHeader,
		"Removed":                     RemovedHeader,
		"Closing":                     ClosingHeader,
		"Log-Seq":                     LogSeqHeader,
		"Log-Part":                    LogPartHeader,
		"Dead-Letter-Reason":          DeadLetterReasonHeader,
		"Original-Subject":            OriginalSubjectHeader,
		"Original-Size":               OriginalSizeHeader,
	} {
		require.Equal(t, want, got)
	}
}

func TestIsInbox(t *testing.T) {
	t.Parallel()
	for _, inbox := range []string{"_INBOX.a.b", "_INBOX_ada.x", "_R_.abc"} {
		require.True(t, IsInbox(inbox), inbox)
	}
	for _, other := range []string{"", "_INBOX", "_R_", "x._INBOX.a", ApplySubject("w", "t")} {
		require.False(t, IsInbox(other), other)
	}
}
